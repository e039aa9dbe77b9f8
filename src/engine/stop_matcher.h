#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::engine {

/// Finds stop strings in a text that arrives in pieces, and holds back text that may become a stop string.
/// One per choice; not thread-safe.
class StopMatcher {
 public:
  /// `stops`: each non-empty. `include`: whether the stop string that ends the text is a part of it.
  StopMatcher(std::vector<std::string> stops, bool include);

  struct Result {
    std::string text;                 // the text that is final now, in order
    std::optional<std::string> stop;  // the stop string that ended the text; push nothing after it
  };

  /// Takes the next piece. The match that ends first wins, and among these the longest, so the division into
  /// pieces does not matter.
  Result push(std::string_view piece);
  /// The text held back, when the text ends for another reason.
  std::string flush();

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;  // a proper prefix of a stop string, or more right after a push
};

}  // namespace quire::engine
