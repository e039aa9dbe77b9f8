#include "base/rng.h"

#include <array>

#include <gtest/gtest.h>

namespace quire {
namespace {

TEST(Rng, UnitIntervalStaysBelowOne) {
  EXPECT_EQ(unit_interval(0), 0.0);
  EXPECT_LT(unit_interval(UINT64_MAX), 1.0);
}

TEST(Rng, DrawsDependOnEveryPartOfTheKey) {
  const uint64_t base = keyed_random(1, 2, 3);
  EXPECT_EQ(base, keyed_random(1, 2, 3));
  EXPECT_NE(base, keyed_random(2, 2, 3));
  EXPECT_NE(base, keyed_random(1, 3, 3));
  EXPECT_NE(base, keyed_random(1, 2, 4));
  EXPECT_NE(keyed_random(1, 0, 2), keyed_random(2, 0, 1));
  EXPECT_NE(keyed_random(0, 1, 2), keyed_random(0, 2, 1));
}

TEST(Rng, KeyedDrawsAreUniform) {
  // Chi-square over 64 cells for neighbouring seeds, choices and positions: 63 degrees of freedom, 0.1 % tail
  // 103.4.
  std::array<int, 64> cells{};
  constexpr int kDraws = 64'000;
  for (int i = 0; i < kDraws; ++i) ++cells[keyed_random(i / 400, i / 100 % 4, i % 100) >> 58];
  double chi = 0;
  for (const int count : cells) chi += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi, 103.4);
}

TEST(Rng, BelowCoversItsRange) {
  SplitMix64 random(5);
  std::array<int, 7> seen{};
  for (int i = 0; i < 7000; ++i) ++seen[random.below(7)];
  for (const int count : seen) EXPECT_NEAR(count, 1000, 150);
}

}  // namespace
}  // namespace quire
