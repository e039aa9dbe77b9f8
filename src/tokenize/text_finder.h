#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "tokenize/split.h"

namespace quire::tokenize {

/// Finds any of a set of texts: the longest of those that start first. The work per byte of text is bounded
/// by the length of the longest. Immutable and thread-safe.
class TextFinder {
 public:
  /// `texts[i]` is reported as `values[i]`. Empty texts are never found; among equal texts, the first counts.
  TextFinder() = default;
  TextFinder(const std::vector<std::string_view>& texts, const std::vector<size_t>& values);

  struct Found {
    Span span;
    size_t value;
  };
  /// The first at or after `from`.
  std::optional<Found> find(std::string_view text, size_t from) const;
  /// The longest that starts at `at` (below the text's size).
  std::optional<Found> find_at(std::string_view text, size_t at) const {
    return starts_[static_cast<unsigned char>(text[at])] ? longest_at(text, at) : std::nullopt;
  }
  bool empty() const { return entries_.empty(); }

 private:
  struct Entry {
    std::string text;
    size_t value;
  };
  std::optional<Found> longest_at(std::string_view text, size_t at) const;

  std::vector<Entry> entries_;  // sorted by text
  std::array<bool, 256> starts_{};
};

}  // namespace quire::tokenize
