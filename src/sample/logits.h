#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"

// Passes over one row of logits. A row is divided into spans of kLogitBlock values; the maxima of the spans,
// found once, let every selection skip the spans without candidates, which are nearly all in a vocabulary of
// 128k or more. Sums go through the spans in order, in double, so the same logits give the same bits. Uses no
// libm: the results are the same on every machine.
namespace quire::sample {

inline constexpr size_t kLogitBlock = 64;

constexpr size_t num_logit_blocks(size_t count) { return (count + kLogitBlock - 1) / kLogitBlock; }

/// e^z for z <= 0 with a relative error below 3e-7; 0 for z < -87 and for -inf. The reduction of Cody and
/// Waite 1980 and a polynomial, without branches, so that loops over it are vectorized.
float exp_nonpositive(float z);

/// The index of the first value that is infinite or not a number; `logits.size()` if there is none.
size_t first_not_finite(std::span<const float> logits);

/// A row and the maxima of its spans. Refers to both; it has at least one value, and each is finite or -inf.
class LogitRow {
 public:
  /// Fills `maxima` (resized to num_logit_blocks).
  LogitRow(std::span<const float> values, std::vector<float>& maxima);

  std::span<const float> values() const { return values_; }
  size_t size() const { return values_.size(); }
  float max() const { return max_; }
  TokenId arg_max() const;  // lowest id on a tie

  /// Calls visit(id, value) for every value >= `least`, in the order of ids.
  template <class Visit>
  void for_each_at_least(float least, Visit&& visit) const {
    for (size_t block = 0; block < maxima_.size(); ++block) {
      if (maxima_[block] < least) continue;
      const size_t end = end_of(block);
      for (size_t i = block * kLogitBlock; i < end; ++i) {
        if (values_[i] >= least) visit(static_cast<TokenId>(i), values_[i]);
      }
    }
  }

  /// The best `count` (at most size()), best first, lowest id first on a tie.
  struct Entry {
    TokenId id = 0;
    float value = 0.0F;
  };
  void best(size_t count, std::vector<Entry>& out) const;

  /// How many values come before that of `id` in the order of best().
  uint32_t num_better(TokenId id) const;

  /// The sum of e^((value - max) / temperature), and the part of each span. temperature > 0.
  double exp_sum(float temperature, std::vector<double>& block_sums) const;
  double exp_sum() const;  // temperature 1

  /// The first id at which the running sum of e^((value - max) / temperature) exceeds `target`, which must be
  /// in [0, exp_sum); `block_sums` are those of the same temperature.
  TokenId find_in_exp_sum(float temperature, double target, std::span<const double> block_sums) const;

 private:
  size_t end_of(size_t block) const { return std::min(values_.size(), (block + 1) * kLogitBlock); }
  double exp_sum_of_block(size_t block, float temperature) const;

  std::span<const float> values_;
  std::span<const float> maxima_;
  float max_;
};

}  // namespace quire::sample
