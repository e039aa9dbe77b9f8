#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

/// U+FFFD, which replaces invalid UTF-8.
inline constexpr std::string_view kReplacementCharacter = "\xEF\xBF\xBD";

enum class Utf8Status : uint8_t { kValid, kIncomplete, kInvalid };

struct Utf8Scan {
  Utf8Status status;
  uint32_t size;  // of the character, or of the maximal subpart that becomes one U+FFFD; at least 1
};

/// Scans the sequence at the start of `bytes` (not empty). kIncomplete: `bytes` ends inside a sequence that
/// could still become a character. Maximal subparts as in the Unicode standard, section 3.9, table 3-7.
Utf8Scan scan_utf8(std::string_view bytes);

struct Utf8Char {
  char32_t code;
  uint32_t size;  // bytes
};

/// The character at `pos`; `text` must be valid UTF-8 and `pos` the start of a character.
inline Utf8Char utf8_at(std::string_view text, size_t pos) {
  const auto byte = [&](size_t i) {
    return static_cast<char32_t>(static_cast<unsigned char>(text[pos + i]));
  };
  const char32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  if (first < 0xE0) return {(first & 0x1F) << 6 | (byte(1) & 0x3F), 2};
  if (first < 0xF0) return {(first & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F), 3};
  return {(first & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F), 4};
}

/// Whether `byte` is a continuation byte.
constexpr bool continues_utf8(char byte) { return (static_cast<unsigned char>(byte) & 0xC0) == 0x80; }
/// The number of characters that begin in `text`.
size_t count_utf8(std::string_view text);
/// The longest prefix of `text` of at most `most` bytes that splits no character.
std::string_view utf8_prefix(std::string_view text, size_t most);
bool is_ascii(std::string_view text);
bool is_white_space(char32_t code);  // the White_Space property

/// The character that ends at `end` (> 0), under the same conditions as utf8_at.
Utf8Char utf8_before(std::string_view text, size_t end);

void append_utf8(std::string& out, char32_t code);

/// Whether `text` is one UTF-8 character and nothing else.
bool is_one_char(std::string_view text);

/// Every maximal subpart of an ill-formed sequence becomes U+FFFD.
std::string repair_utf8(std::string_view bytes);
bool is_valid_utf8(std::string_view bytes);

/// repair_utf8 for bytes that arrive in pieces: never splits a character.
class Utf8Repair {
 public:
  void push(std::string_view bytes, std::string& out);
  /// Ends the input: bytes still held can no longer become a character.
  void finish(std::string& out);

 private:
  std::array<char, 4> held_{};
  uint32_t held_size_ = 0;
};

}  // namespace quire
