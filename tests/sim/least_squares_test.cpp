#include "sim/least_squares.h"

#include <array>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::sim {
namespace {

TEST(LeastSquares, FindsTheCostsOfTermsThatAddUp) {
  LeastSquares equations(3);
  SplitMix64 random(1);
  for (int i = 0; i < 200; ++i) {
    const std::array<double, 3> row = {1, static_cast<double>(random.below(1'000'000)),
                                       static_cast<double>(random.below(10))};
    equations.add(row, 5 * row[0] + 0.002 * row[1] + 700 * row[2]);
  }
  const std::vector<double> x = equations.solve();
  EXPECT_NEAR(x[0], 5, 1e-3);
  EXPECT_NEAR(x[1], 0.002, 1e-9);
  EXPECT_NEAR(x[2], 700, 1e-3);
}

// The unbounded answer is x = (3, -1); with x >= 0 the least error is at (1, 0).
TEST(LeastSquares, NoCostIsNegative) {
  LeastSquares equations(2);
  equations.add(std::array<double, 2>{1, 1}, 2);
  equations.add(std::array<double, 2>{1, 3}, 0);
  const std::vector<double> x = equations.solve();
  EXPECT_NEAR(x[0], 1, 1e-9);
  EXPECT_EQ(x[1], 0);
}

TEST(LeastSquares, AColumnOfZerosAndTwoAlikeDoNotDisturb) {
  LeastSquares equations(3);
  for (int i = 1; i < 9; ++i) equations.add(std::array<double, 3>{1.0 * i, 2.0 * i, 0}, 6.0 * i);
  const std::vector<double> x = equations.solve();
  EXPECT_NEAR(x[0] + 2 * x[1], 6, 1e-9);
  EXPECT_EQ(x[2], 0);
}

}  // namespace
}  // namespace quire::sim
