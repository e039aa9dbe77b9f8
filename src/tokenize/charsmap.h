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

/// SentencePiece's compiled normalization rules ("precompiled_charsmap"): what a sequence of characters is
/// replaced by. The bytes are the size of a double array (4 bytes, little-endian), the double array in the
/// manner of darts-clone, and the replacements, each ended by a zero byte. Immutable and thread-safe.
class CharsMap {
 public:
  /// A rule of more bytes is refused: it bounds what one place of a text costs.
  static constexpr size_t kMaxRuleBytes = 256;
  /// The error says what is wrong. Every step through the array is checked again when it is walked.
  static tl::expected<CharsMap, std::string> parse(std::string_view bytes);

  struct Match {
    size_t size;                   // bytes of the text
    std::string_view replacement;  // valid UTF-8
  };
  /// The longest rule that `text` starts with.
  std::optional<Match> longest(std::string_view text) const;
  /// The shortest.
  std::optional<Match> shortest(std::string_view text) const;

  /// False if no rule begins with the two bytes nor is the first of them alone; both below 0x80.
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
