#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace quire::tokenize {

// GPT-2's way to write any bytes as printable text: each byte is one character, printable Latin-1 stands for
// itself, the other 68 bytes for U+0100 and on.

/// Appends the characters of `bytes`.
void append_byte_level(std::string& out, std::string_view bytes);

/// Appends the bytes that `text` (valid UTF-8) stands for. If one of its characters stands for no byte, the
/// text itself.
void append_from_byte_level(std::string& out, std::string_view text);

/// GPT-2's pre-tokenizer pattern.
inline constexpr std::string_view kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

}  // namespace quire::tokenize
