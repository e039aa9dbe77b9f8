#include "sim/zipf.h"

#include <algorithm>

#include "sim/fixed_point.h"

namespace quire::sim {

Zipf::Zipf(uint32_t n, uint32_t alpha_thousandths) {
  uint64_t sum = 0;
  sums_.reserve(n);
  for (uint32_t k = 1; k <= n; ++k) {
    const auto exponent = static_cast<int64_t>(int128{log2_q32(k)} * alpha_thousandths / 1000);
    sums_.push_back(sum += exp2_q32(-exponent) + 1);
  }
}

uint32_t Zipf::draw(SplitMix64& random) const {
  const uint64_t at = random.below(sums_.back());
  return static_cast<uint32_t>(std::upper_bound(sums_.begin(), sums_.end(), at) - sums_.begin());
}

}  // namespace quire::sim
