#include "sim/fixed_point.h"

#include <cmath>

#include <gtest/gtest.h>

namespace quire::sim {
namespace {

constexpr double kUnit = 0x1p-32;

TEST(FixedPoint, SquareRootIsTheFloor) {
  SplitMix64 random(1);
  for (int i = 0; i < 10000; ++i) {
    const uint128 x = (uint128{random.next()} << 64 | random.next()) >> random.below(128);
    const uint128 root = integer_sqrt(x);
    EXPECT_LE(root * root, x);
    // (root + 1)^2 may not fit 128 bits.
    EXPECT_GT(2 * root + 1, x - root * root);
  }
  EXPECT_EQ(integer_sqrt(0), 0U);
  EXPECT_EQ(integer_sqrt(~uint128{0}), UINT64_MAX);
}

TEST(FixedPoint, LogarithmsAndPowersAreThoseOfTheMathLibrary) {
  SplitMix64 random(2);
  for (int i = 0; i < 10000; ++i) {
    const uint64_t x = (random.next() >> random.below(64)) | 1;
    EXPECT_NEAR(static_cast<double>(log2_q32(x)) * kUnit, std::log2(static_cast<double>(x)), 4 * kUnit);
    const int64_t y = static_cast<int64_t>(random.below(uint64_t{60} << 32)) - (int64_t{30} << 32);
    const double expected = std::exp2(static_cast<double>(y) * kUnit);
    EXPECT_NEAR(static_cast<double>(exp2_q32(y)) * kUnit, expected, expected * 1e-9 + kUnit);
  }
  for (int bit = 0; bit < 64; ++bit) EXPECT_EQ(log2_q32(uint64_t{1} << bit), bit * kOneQ32);
  for (int64_t whole = -32; whole < 32; ++whole) {
    EXPECT_EQ(exp2_q32(whole * kOneQ32), uint64_t{1} << (whole + 32)) << whole;
  }
  EXPECT_EQ(exp2_q32(32 * kOneQ32), UINT64_MAX);
  EXPECT_EQ(exp2_q32(INT64_MIN), 0U);
  for (int64_t whole = -40; whole <= -33; ++whole) {
    EXPECT_EQ(exp2_q32(whole * kOneQ32 + kOneQ32 / 2), 0U) << whole;
  }
}

TEST(FixedPoint, ExponentialHasMeanOneAndVarianceOne) {
  SplitMix64 random(3);
  constexpr int kDraws = 200000;
  double sum = 0;
  double squares = 0;
  int over_three = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = static_cast<double>(draw_exponential_q32(random)) * kUnit;
    ASSERT_GE(x, 0);
    sum += x;
    squares += x * x;
    over_three += x > 3 ? 1 : 0;
  }
  EXPECT_NEAR(sum / kDraws, 1, 0.01);
  EXPECT_NEAR(squares / kDraws, 2, 0.05);
  EXPECT_NEAR(over_three / double{kDraws}, std::exp(-3.0), 0.002);
}

TEST(FixedPoint, NormalHasTheMomentsAndTailsOfOne) {
  SplitMix64 random(4);
  constexpr int kDraws = 200000;
  double sums[5] = {};
  int beyond_two = 0;
  int beyond_three = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double x = static_cast<double>(draw_normal_q32(random)) * kUnit;
    for (int power = 1; power <= 4; ++power) sums[power] += std::pow(x, power);
    beyond_two += std::abs(x) > 2 ? 1 : 0;
    beyond_three += std::abs(x) > 3 ? 1 : 0;
  }
  EXPECT_NEAR(sums[1] / kDraws, 0, 0.01);
  EXPECT_NEAR(sums[2] / kDraws, 1, 0.01);
  EXPECT_NEAR(sums[3] / kDraws, 0, 0.03);
  EXPECT_NEAR(sums[4] / kDraws, 3, 0.08);
  EXPECT_NEAR(beyond_two / double{kDraws}, 0.0455, 0.002);
  EXPECT_NEAR(beyond_three / double{kDraws}, 0.0027, 0.0005);
}

// The very numbers, so that another compiler or machine is caught.
TEST(FixedPoint, DrawsArePinned) {
  SplitMix64 random(5);
  uint64_t digest = 0;
  for (int i = 0; i < 1000; ++i) {
    digest = mix64(digest ^ static_cast<uint64_t>(draw_normal_q32(random)));
    digest = mix64(digest ^ static_cast<uint64_t>(draw_exponential_q32(random)));
  }
  EXPECT_EQ(digest, 4087155147281128610U);
}

}  // namespace
}  // namespace quire::sim
