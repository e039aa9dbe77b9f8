#pragma once

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace quire::sim {

/// Draws numbers from 0 to n - 1, the k-th in proportion to k^-alpha. Takes 8 bytes for each.
class Zipf {
 public:
  Zipf(uint32_t n, uint32_t alpha_thousandths);
  uint32_t draw(SplitMix64& random) const;

 private:
  std::vector<uint64_t> sums_;
};

}  // namespace quire::sim
