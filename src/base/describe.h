#pragma once

#include <exception>
#include <string>

namespace quire {

/// Short enough that a std::string of it allocates nothing.
inline constexpr const char* kOutOfMemory = "out of memory";

/// The message of an exception, as the end of one line for users and logs: a lack of memory and the errors of
/// std::filesystem ("PATH: WHAT") in plain words, any other exception as its what(). Thread-safe.
std::string describe(const std::exception& error);

/// The same for the exception that is being handled, of any type; kOutOfMemory if there is no memory for its
/// message. REQUIRES: an exception is being handled.
std::string describe_current_exception() noexcept;

}  // namespace quire
