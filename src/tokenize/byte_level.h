#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::tokenize {

// GPT-2's encoding of arbitrary bytes as printable text: each byte becomes one character. Printable Latin-1
// is unchanged, and the other 68 bytes become U+0100 and up.

/// Appends the characters of `bytes`.
void append_byte_level(std::string& out, std::string_view bytes);

/// Decodes `text` (valid UTF-8) and appends the bytes. If one of its characters stands for no byte, appends
/// the text itself.
void append_from_byte_level(std::string& out, std::string_view text);

/// GPT-2's pre-tokenizer pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace quire::tokenize
