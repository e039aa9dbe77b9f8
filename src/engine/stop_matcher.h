#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire::engine {

/// Finds stop strings in a text that grows piece by piece, holding back what may yet become one.
/// One per choice; not thread-safe.
class StopMatcher {
 public:
  /// `stops`: each non-empty. `include`: a stop string that ends the text is part of it.
  StopMatcher(std::vector<std::string> stops, bool include);

  struct Result {
    std::string text;                 // final now, in order of the text
    std::optional<std::string> stop;  // the stop string that ended it; nothing may be pushed after it
  };

  /// Takes the next piece. The match that ends first wins, among these the longest: so the pieces do not
  /// matter.
  Result push(std::string_view piece);
  /// What is held back, when the text ends for another reason.
  std::string flush();

 private:
  std::vector<std::string> stops_;
  bool include_;
  std::string held_;  // a proper prefix of a stop string, or more right after a push
};

}  // namespace quire::engine
