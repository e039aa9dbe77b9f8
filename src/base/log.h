#pragma once

#include <string_view>

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets what is written to standard error. Info is the default.
void set_log_level(LogLevel level);

/// One line each, thread-safe; they never throw. Format before the call (fmt::format): a small header.
void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace quire
