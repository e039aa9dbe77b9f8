#pragma once

#include <array>
#include <bit>
#include <cstdint>

#include "base/rng.h"

// Logarithms, powers and random draws in integers, the same to the bit on every machine: the decisions of a
// simulation must not depend on a libm. Q32 is a number times 2^32. Errors are a few units of 2^-32.
namespace quire::sim {

__extension__ using uint128 = unsigned __int128;
__extension__ using int128 = __int128;

inline constexpr int64_t kOneQ32 = int64_t{1} << 32;
inline constexpr int64_t kLn2Q32 = 2977044472;    // ln 2
inline constexpr int64_t kLog2eQ32 = 6196328019;  // 1 / ln 2

constexpr int64_t multiply_q32(int64_t a, int64_t b) { return static_cast<int64_t>((int128{a} * b) >> 32); }

/// floor(sqrt(x)).
constexpr uint64_t integer_sqrt(uint128 x) {
  uint64_t root = 0;
  for (int bit = 63; bit >= 0; --bit) {
    const uint64_t next = root | (uint64_t{1} << bit);
    if (uint128{next} * next <= x) root = next;
  }
  return root;
}

/// log2(x) for x >= 1, as Q32: the fraction's bits are found by repeated squaring.
constexpr int64_t log2_q32(uint64_t x) {
  const int zeros = std::countl_zero(x);
  uint64_t m = x << zeros;  // [1, 2) times 2^63
  int64_t result = 63 - zeros;
  for (int i = 0; i < 32; ++i) {
    uint128 square = (uint128{m} * m) >> 63;
    const bool over = (square >> 64) != 0;
    if (over) square >>= 1;
    m = static_cast<uint64_t>(square);
    result = result * 2 + (over ? 1 : 0);
  }
  return result;
}

/// 2^x for x in Q32, as Q32; UINT64_MAX if the result is 2^32 or more.
constexpr uint64_t exp2_q32(int64_t x) {
  // roots[i] = 2^(2^(i - 32)) times 2^62.
  constexpr auto kRoots = [] {
    std::array<uint64_t, 32> roots{};
    uint64_t root = uint64_t{2} << 62;
    for (int i = 31; i >= 0; --i) roots[i] = root = integer_sqrt(uint128{root} << 62);
    return roots;
  }();
  const int64_t whole = x >> 32;
  if (whole >= 32) return UINT64_MAX;
  if (whole < -33) return 0;  // and no shift by 64 below
  uint64_t y = uint64_t{1} << 62;
  for (int i = 0; i < 32; ++i) {
    if ((x >> i & 1) != 0) y = static_cast<uint64_t>((uint128{y} * kRoots[i]) >> 62);
  }
  return whole >= 30 ? y << (whole - 30) : y >> (30 - whole);
}

/// Exponential with mean 1, as Q32: -ln of a uniform number in (0, 1].
constexpr int64_t draw_exponential_q32(SplitMix64& random) {
  const uint64_t uniform = (random.next() >> 11) + 1;  // times 2^53
  return multiply_q32(53 * kOneQ32 - log2_q32(uniform), kLn2Q32);
}

/// Standard normal, as Q32, by Marsaglia's polar method (1964).
constexpr int64_t draw_normal_q32(SplitMix64& random) {
  while (true) {
    const int64_t u = static_cast<int32_t>(random.next() >> 32);  // [-1, 1) times 2^31
    const int64_t v = static_cast<int32_t>(random.next() >> 32);
    const uint64_t s = static_cast<uint64_t>(u * u) + static_cast<uint64_t>(v * v);  // times 2^62
    if (s == 0 || s >= uint64_t{1} << 62) continue;
    const int64_t minus_2_ln = 2 * multiply_q32(62 * kOneQ32 - log2_q32(s), kLn2Q32);
    const auto radius = static_cast<int64_t>(integer_sqrt(uint128{static_cast<uint64_t>(minus_2_ln)} << 32));
    const auto length = static_cast<int64_t>(integer_sqrt(s));  // of (u, v), times 2^31
    return static_cast<int64_t>(int128{radius} * u / length);
  }
}

}  // namespace quire::sim
