#include "grammar/mask_allowance.h"

#include <chrono>

#include <gtest/gtest.h>

namespace quire::grammar {
namespace {

using std::chrono::seconds;

TEST(MaskAllowance, WhatIsUsedUpComesBack) {
  MaskAllowance allowance;
  const auto now = MaskAllowance::Clock::now();
  EXPECT_TRUE(allowance.whole(now));
  EXPECT_TRUE(allowance.spend(MaskAllowance::kMost, now));
  EXPECT_EQ(allowance.wait(now), seconds(0));
  EXPECT_FALSE(allowance.spend(5 * MaskAllowance::kStatesPerSecond, now));
  EXPECT_FALSE(allowance.whole(now));
  EXPECT_EQ(allowance.wait(now), seconds(6));
  EXPECT_EQ(allowance.wait(now + seconds(3)), seconds(3));
  EXPECT_EQ(allowance.wait(now + seconds(6)), seconds(0));
  EXPECT_FALSE(allowance.whole(now + seconds(6)));
  EXPECT_TRUE(allowance.whole(now + seconds(3600)));
}

TEST(MaskAllowance, WhatIsOwedHasABound) {
  MaskAllowance allowance;
  const auto now = MaskAllowance::Clock::now();
  EXPECT_FALSE(allowance.spend(INT64_C(1'000'000'000'000), now));
  EXPECT_LE(allowance.wait(now), seconds(1 + MaskAllowance::kMostOwed / MaskAllowance::kStatesPerSecond));
}

TEST(MaskAllowance, AnEarlierTimeGivesNothing) {
  MaskAllowance allowance;
  const auto now = MaskAllowance::Clock::now();
  EXPECT_FALSE(allowance.spend(MaskAllowance::kMost + 10, now));
  EXPECT_FALSE(allowance.spend(10, now - seconds(100)));
  EXPECT_GT(allowance.wait(now), seconds(0));
}

}  // namespace
}  // namespace quire::grammar
