#pragma once

#include <cstdint>

namespace quire {

/// SplitMix64's finalizer (Steele, Lea, Flood 2014): a bijection of 64 bits that mixes them well.
constexpr uint64_t mix64(uint64_t x) {
  x += 0x9e3779b97f4a7c15U;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9U;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebU;
  return x ^ (x >> 31);
}

/// A counter-based generator: a draw depends only on the key, and on no earlier draw. Sampling keys it by
/// (seed, choice index, position of the token in its sequence).
constexpr uint64_t keyed_random(uint64_t seed, uint64_t stream, uint64_t counter) {
  return mix64(mix64(mix64(seed) ^ stream) ^ counter);
}

/// The top 53 bits as a double in [0, 1), the same on every machine.
constexpr double unit_interval(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1.0p-53; }

/// A sequential SplitMix64 generator for tests, workloads and simulation.
class SplitMix64 {
 public:
  explicit constexpr SplitMix64(uint64_t seed) : state_(seed) {}
  constexpr uint64_t next() {
    const uint64_t out = mix64(state_);
    state_ += 0x9e3779b97f4a7c15U;
    return out;
  }
  /// Uniform in [0, bound), bound > 0. The bias is below 2^-32 for bounds that fit 32 bits.
  constexpr uint64_t below(uint64_t bound) {
    return static_cast<uint64_t>((static_cast<unsigned __int128>(next()) * bound) >> 64);
  }

 private:
  uint64_t state_;
};

}  // namespace quire
