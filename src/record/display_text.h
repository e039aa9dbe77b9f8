#pragma once

#include <string>
#include <string_view>

// Text of others, made fit to be shown.
namespace quire {

/// U+FFFD for each byte that is not part of valid UTF-8.
std::string valid_utf8(std::string_view text);

/// For a terminal: valid UTF-8 in which control characters, and those that change the direction of text or
/// are not to be seen, are written as \u{1b}.
std::string printable(std::string_view text);

/// Standard base64, padded.
std::string base64(std::string_view bytes);

}  // namespace quire
