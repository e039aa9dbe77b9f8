#pragma once

#include <exception>
#include <string>

namespace quire {

/// Short enough for a std::string that allocates nothing.
inline constexpr const char* kOutOfMemory = "out of memory";

/// What an exception says, as the end of one line for users and logs: a lack of memory and the errors of
/// std::filesystem ("PATH: WHAT") in plain words, any other as its what(). Thread-safe.
std::string describe(const std::exception& error);

/// The same of the exception that is being handled, of any type; kOutOfMemory where there is no memory for
/// its words. REQUIRES: an exception is being handled.
std::string describe_current_exception() noexcept;

}  // namespace quire
