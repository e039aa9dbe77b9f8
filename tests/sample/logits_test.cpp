#include "sample/logits.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "base/rng.h"

namespace quire::sample {
namespace {

std::vector<float> random_logits(size_t count, uint64_t seed, float spread = 8.0F) {
  SplitMix64 rng(seed);
  std::vector<float> out(count);
  for (float& x : out) x = (static_cast<float>(unit_interval(rng.next())) - 0.5F) * 2.0F * spread;
  return out;
}

TEST(ExpNonpositive, IsCloseToTheTrueExponential) {
  double worst = 0.0;
  for (double z = -87.0; z <= 0.0; z += 0.00037) {
    const auto given = static_cast<float>(z);
    const double expected = std::exp(static_cast<double>(given));
    worst = std::max(worst, std::abs(static_cast<double>(exp_nonpositive(given)) / expected - 1.0));
  }
  EXPECT_LT(worst, 3e-7);
  EXPECT_EQ(exp_nonpositive(0.0F), 1.0F);
  EXPECT_EQ(exp_nonpositive(-88.0F), 0.0F);
  EXPECT_EQ(exp_nonpositive(-1e30F), 0.0F);
  EXPECT_EQ(exp_nonpositive(-std::numeric_limits<float>::infinity()), 0.0F);
}

TEST(FirstNotFinite, FindsTheFirstOfEachKind) {
  for (const size_t size : {1, 63, 64, 65, 1000}) {
    const std::vector<float> good = random_logits(size, 1, 1e38F);
    EXPECT_EQ(first_not_finite(good), size);
    for (const float bad : {std::nanf(""), -std::nanf(""), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
      for (const size_t at : {size_t{0}, size / 2, size - 1}) {
        std::vector<float> x = good;
        x[at] = bad;
        x[size - 1] = bad;
        EXPECT_EQ(first_not_finite(x), at);
      }
    }
  }
}

// Sizes around the blocks; values from a small set, so that ties are everywhere.
TEST(LogitRow, AgreesWithAFullSort) {
  for (const size_t size : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 200, 1000, 4097}) {
    for (const int distinct : {1, 3, 1000}) {
      SplitMix64 rng(size * 10 + static_cast<size_t>(distinct));
      std::vector<float> x(size);
      for (float& v : x) v = static_cast<float>(rng.below(static_cast<uint64_t>(distinct))) - 1.0F;
      std::vector<float> maxima;
      const LogitRow row(x, maxima);
      std::vector<TokenId> order(size);
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
        return x[static_cast<size_t>(a)] > x[static_cast<size_t>(b)];
      });
      EXPECT_EQ(row.arg_max(), order[0]);
      EXPECT_EQ(row.max(), x[static_cast<size_t>(order[0])]);
      std::vector<LogitRow::Entry> best;
      for (const size_t count : {size_t{0}, size_t{1}, size_t{2}, size_t{20}, size / 2, size, size + 5}) {
        row.best(count, best);
        ASSERT_EQ(best.size(), std::min(count, size));
        for (size_t i = 0; i < best.size(); ++i) {
          ASSERT_EQ(best[i].id, order[i]);
          ASSERT_EQ(best[i].value, x[static_cast<size_t>(order[i])]);
        }
      }
      for (size_t i = 0; i < std::min<size_t>(size, 70); ++i) ASSERT_EQ(row.num_better(order[i]), i);
      std::vector<TokenId> visited;
      std::vector<TokenId> expected;
      row.for_each_at_least(0.0F, [&](TokenId id, float) { visited.push_back(id); });
      for (size_t i = 0; i < size; ++i) {
        if (x[i] >= 0.0F) expected.push_back(static_cast<TokenId>(i));
      }
      EXPECT_EQ(visited, expected);
    }
  }
}

TEST(LogitRow, ExpSumAgreesWithDouble) {
  for (const size_t size : {1, 64, 70, 5000, 128256}) {
    for (const float temperature : {0.05F, 1.0F, 3.0F}) {
      const std::vector<float> x = random_logits(size, size, 60.0F);
      std::vector<float> maxima;
      std::vector<double> sums;
      const LogitRow row(x, maxima);
      double expected = 0.0;
      for (const float v : x) {
        expected += std::exp((static_cast<double>(v) - static_cast<double>(row.max())) /
                             static_cast<double>(temperature));
      }
      const double sum = row.exp_sum(temperature, sums);
      // The division by the temperature rounds exponents of up to 87 in single precision.
      EXPECT_NEAR(sum / expected, 1.0, 3e-6) << size << " " << temperature;
      EXPECT_EQ(sum, row.exp_sum(temperature, sums));
      if (temperature == 1.0F) {
        EXPECT_EQ(sum, row.exp_sum());
      }
      // Every target is answered by the id whose interval of the running sum holds it.
      double below = 0.0;
      for (size_t i = 0; i < std::min<size_t>(size, 2000); ++i) {
        const auto weight = static_cast<double>(exp_nonpositive((x[i] - row.max()) / temperature));
        if (weight > 1e-6 * sum) {
          EXPECT_EQ(row.find_in_exp_sum(temperature, below + 0.5 * weight, sums), static_cast<TokenId>(i));
        }
        below += weight;
      }
      const TokenId last = row.find_in_exp_sum(temperature, sum, sums);
      EXPECT_GT(exp_nonpositive((x[static_cast<size_t>(last)] - row.max()) / temperature), 0.0F);
    }
  }
}

}  // namespace
}  // namespace quire::sample
