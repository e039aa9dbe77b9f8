#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

namespace quire::tokenize {

/// SentencePiece's compiled normalization rules ("precompiled_charsmap"): the replacements of character
/// sequences. The bytes are the size of a double array (4 bytes, little-endian), the double array as in
/// darts-clone, and the replacements, each with a final zero byte. Immutable and thread-safe.
class CharsMap {
 public:
  /// A longer rule is refused: this bounds the cost at one place of a text.
  static constexpr size_t kMaxRuleBytes = 256;
  /// The error says what is wrong. Every step through the array is also checked during matching.
  static tl::expected<CharsMap, std::string> parse(std::string_view bytes);

  struct Match {
    size_t size;                   // bytes of the text
    std::string_view replacement;  // valid UTF-8
  };
  /// The longest rule that `text` starts with.
  std::optional<Match> longest(std::string_view text) const;
  /// The shortest.
  std::optional<Match> shortest(std::string_view text) const;

  /// False if no rule begins with the two bytes or consists of the first byte alone; both are below 0x80.
  bool concerns(char first, char second) const {
    return pairs_.test(static_cast<size_t>(first) * 128 + static_cast<size_t>(second));
  }

 private:
  /// Calls `found` with the length and the place of the replacement of each rule that `text` starts with, the
  /// shortest first, until it returns false.
  template <class Found>
  void walk(std::string_view text, const Found& found) const;
  std::string_view replacement_at(size_t place) const;

  std::vector<uint32_t> units_;
  std::string replacements_;
  std::bitset<size_t{128} * 128> pairs_;
};

}  // namespace quire::tokenize
