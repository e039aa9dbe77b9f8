#pragma once

#include <string_view>

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets what is written to standard error. Info is the default.
void set_log_level(LogLevel level);

/// One line each, thread-safe. Format before the call (fmt::format) so that this header stays small.
void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace quire
