#include "engine/answer_lengths.h"

#include <algorithm>

namespace quire::engine {
namespace {

/// Of a sorted list, how many are at most `value`.
size_t up_to(const std::vector<uint32_t>& sorted, uint32_t value) {
  return static_cast<size_t>(std::upper_bound(sorted.begin(), sorted.end(), value) - sorted.begin());
}

}  // namespace

void AnswerLengths::add(uint32_t tokens, bool cut) {
  kept_[count_++ % kKept] = {tokens, cut};
  whole_.clear();
  cut_.clear();
  for (size_t i = 0; i < std::min(count_, kKept); ++i) {
    (kept_[i].cut ? cut_ : whole_).push_back(kept_[i].tokens);
  }
  std::ranges::sort(whole_);
  std::ranges::sort(cut_);
  sums_.assign(1, 0);
  for (const uint32_t each : whole_) sums_.push_back(sums_.back() + each);
}

uint32_t AnswerLengths::expect(uint32_t generated, uint32_t most) const {
  if (generated >= most || count_ == 0) return most;
  const size_t first = up_to(whole_, generated);
  const size_t shorter = std::max(first, up_to(whole_, most));  // than `most`, from `first` on
  const uint64_t at_most = (whole_.size() - shorter) + (cut_.size() - up_to(cut_, generated));
  const uint64_t number = (shorter - first) + at_most;
  if (number == 0) return static_cast<uint32_t>(std::min<uint64_t>(most, uint64_t{2} * generated + 1));
  const uint64_t sum = sums_[shorter] - sums_[first] + at_most * most;
  return std::max(generated + 1, static_cast<uint32_t>((sum + number / 2) / number));
}

}  // namespace quire::engine
