#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/json.h"
#include "tokenize/regex.h"

namespace quire::tokenize {

/// The pattern of a Split or Replace: a text, or a regular expression.
class Pattern {
 public:
  explicit Pattern(std::string text) : what_(std::move(text)) {}
  /// From {"String": "..."} or {"Regex": "..."} under `key`. Throws Error naming file and key.
  static Pattern from_json(const JsonObject& parent, std::string_view key);

  /// Appends every match in `text` (valid UTF-8), from left to right, none overlapping.
  void find_all(std::string_view text, std::vector<Span>& out) const;

 private:
  explicit Pattern(Regex regex) : what_(std::move(regex)) {}
  std::variant<std::string, Regex> what_;
};

/// What happens to the matches when a text is split at them ("the-final--countdown" at "-"):
enum class SplitBehavior : uint8_t {
  kRemoved,             // the final countdown
  kIsolated,            // the - final - - countdown
  kMergedWithPrevious,  // the- final- - countdown
  kMergedWithNext,      // the -final - -countdown
  kContiguous,          // the - final -- countdown
};

SplitBehavior split_behavior_from_json(const JsonObject& parent, std::string_view key);

/// Splits [0, size) at `matches`; `invert`: the text between the matches is the delimiter. Appends the parts,
/// none of them empty.
void split_at(size_t size, const std::vector<Span>& matches, bool invert, SplitBehavior behavior,
              std::vector<Span>& out);

}  // namespace quire::tokenize
