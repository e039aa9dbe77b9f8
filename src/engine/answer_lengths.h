#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace quire::engine {

/// How long answers will be, judged by the last kKept that have ended. Not thread-safe.
class AnswerLengths {
 public:
  static constexpr size_t kKept = 128;

  /// An answer of so many tokens has ended. `cut`: at its max_tokens, so it would have been longer.
  void add(uint32_t tokens, bool cut);

  /// The length of an answer that has `generated` tokens and goes on, and may have `most`: more than
  /// `generated`, unless that is `most`. The mean of those kept that were longer than `generated`, each no
  /// longer than `most`; one that was cut counts as `most`. If none was longer, twice what it has; before the
  /// first has ended, `most`.
  uint32_t expect(uint32_t generated, uint32_t most) const;

 private:
  struct Answer {
    uint32_t tokens = 0;
    bool cut = false;
  };
  std::array<Answer, kKept> kept_{};
  size_t count_ = 0;
  // The kept ones in order of their lengths: those that ended by themselves, with the sums of the first ones,
  // and those that were cut.
  std::vector<uint32_t> whole_;
  std::vector<uint64_t> sums_;
  std::vector<uint32_t> cut_;
};

}  // namespace quire::engine
