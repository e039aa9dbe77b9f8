#pragma once

#include <string_view>

namespace quire {

enum class LogLevel { kDebug, kInfo, kWarning, kError, kOff };

/// Sets the lowest level that is written to standard error. The default is info.
void set_log_level(LogLevel level);

/// Write one line each. Thread-safe; they never throw. The caller formats the message (fmt::format), which
/// keeps this header small.
void log_debug(std::string_view message);
void log_info(std::string_view message);
void log_warning(std::string_view message);
void log_error(std::string_view message);

}  // namespace quire
