#include <bit>
#include <utility>

#include "control/eviction/ranked.h"

namespace quire::control {
namespace {

// Positive numbers as integers that compare like them: 32 bits of exponent, 32 of fraction.
constexpr uint64_t kOne = uint64_t{1} << 32;
constexpr uint64_t fraction(uint64_t x) { return x & (kOne - 1); }

/// 2^x, x with 32 binary places, within 0.3 %: 2^f is about 1 + f - 0.343 f (1 - f) between 0 and 1.
constexpr uint64_t power(uint64_t x) {
  return x - (((fraction(x) * (kOne - fraction(x))) >> 32) * 11239 >> 15);
}

constexpr uint64_t sum(uint64_t a, uint64_t b) {
  if (a > b) std::swap(a, b);
  const uint64_t shift = (b >> 32) - (a >> 32);
  const uint64_t both = kOne + fraction(b) + (a == 0 || shift > 32 ? 0 : (kOne + fraction(a)) >> shift);
  return b - fraction(b) + (both < 2 * kOne ? fraction(both) : both / 2);
}

/// Frequency: score <- score x decay + 1 at each use; the half-life is one to two uses per block of the pool.
/// Since all scores decay alike, a use adds 2^(time / half-life) instead, and only the used block is updated.
class LfuEviction final : public RankedEviction {
 public:
  using RankedEviction::RankedEviction;

 private:
  void used(Entry& entry) override { move(entry, 0, sum(entry.rank, power(kOne + (++time_ << shift_)))); }

  const int shift_ = std::countl_zero(num_blocks());  // from uses to half-lives with 32 binary places
  uint64_t time_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> make_lfu(uint32_t num_blocks) {
  return std::make_unique<LfuEviction>(num_blocks);
}

}  // namespace quire::control
