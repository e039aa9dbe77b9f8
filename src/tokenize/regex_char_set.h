#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire::tokenize {

/// A set of Unicode characters without surrogates, as ranges in ascending order with gaps between them.
class CharSet {
 public:
  struct Range {
    char32_t first = 0;
    char32_t last = 0;  // inclusive
  };

  /// The characters that PCRE2 (with UTF and UCP) matches with "[members]", case-sensitive. Tries every
  /// character, which takes some milliseconds. Throws std::invalid_argument with PCRE2's message if this is
  /// not a class.
  static CharSet of_class(std::string_view members);

  /// From `first` to `last`, without the surrogates among them.
  static CharSet of_range(char32_t first, char32_t last);

  bool empty() const { return ranges_.empty(); }
  bool contains(char32_t code) const;
  const std::vector<Range>& ranges() const { return ranges_; }
  CharSet complement() const;
  CharSet united(const CharSet& other) const;
  CharSet intersected(const CharSet& other) const;
  bool includes(const CharSet& other) const;
  /// Text for use between "[" and "]" in a PCRE2 pattern.
  std::string members() const;

 private:
  void add(char32_t first, char32_t last);
  void add_valid(char32_t first, char32_t last);  // without the surrogates

  std::vector<Range> ranges_;
};

}  // namespace quire::tokenize
