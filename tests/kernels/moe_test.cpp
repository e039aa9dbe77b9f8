#include "kernels/moe.h"

#include <algorithm>
#include <numeric>

#include "tests/kernels/support.h"

namespace quire::test {
namespace {

class Moe : public PerLevel {};

TEST_P(Moe, RoutesToTheMostProbable) {
  constexpr size_t kRows = 37;
  for (const uint32_t experts : {1, 4, 7, 16, 60, 128}) {
    for (const uint32_t top : {1U, 2U, 8U}) {
      if (top > experts) continue;
      for (const bool normalize : {false, true}) {
        const std::vector<float> logits = random_floats(experts, kRows * experts, 3.0F);
        std::vector<float> work = logits;
        std::vector<uint32_t> chosen(kRows * top);
        std::vector<float> weights(kRows * top);
        kernels::route(context_, work.data(), kRows, experts, top, normalize, chosen.data(), weights.data());
        for (size_t row = 0; row < kRows; ++row) {
          const float* own = logits.data() + row * experts;
          std::vector<uint32_t> order(experts);
          std::iota(order.begin(), order.end(), 0U);
          std::sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) { return own[a] > own[b]; });
          double all = 0.0;
          double kept = 0.0;
          for (uint32_t i = 0; i < experts; ++i) all += std::exp(static_cast<double>(own[i]));
          for (uint32_t j = 0; j < top; ++j) kept += std::exp(static_cast<double>(own[order[j]]));
          for (uint32_t j = 0; j < top; ++j) {
            ASSERT_EQ(chosen[row * top + j], order[j]);
            const double expected = std::exp(static_cast<double>(own[order[j]])) / (normalize ? kept : all);
            ASSERT_NEAR(weights[row * top + j], expected, 2e-6 * expected + 1e-9);
          }
        }
      }
    }
  }
}

TEST_P(Moe, TheFirstOfEqualExpertsIsChosen) {
  std::vector<float> logits = {1.0F, 2.0F, 2.0F, 1.0F, 2.0F};
  std::vector<uint32_t> chosen(4);
  std::vector<float> weights(4);
  kernels::route(context_, logits.data(), 1, 5, 4, true, chosen.data(), weights.data());
  EXPECT_EQ(chosen, (std::vector<uint32_t>{1, 2, 4, 0}));
  EXPECT_EQ(weights[0], weights[1]);
}

TEST_P(Moe, NaNChoosesSomethingThatExists) {
  std::vector<float> logits(12, NAN);
  std::vector<uint32_t> chosen(6, 99);
  std::vector<float> weights(6);
  kernels::route(context_, logits.data(), 2, 6, 3, true, chosen.data(), weights.data());
  for (const uint32_t expert : chosen) EXPECT_LT(expert, 6U);
}

TEST_P(Moe, ARowDoesNotDependOnOthers) {
  constexpr size_t kRows = 300;
  constexpr uint32_t kExperts = 21;
  constexpr uint32_t kTop = 3;
  const std::vector<float> logits = random_floats(1, kRows * kExperts, 4.0F);
  std::vector<float> work = logits;
  std::vector<uint32_t> chosen(kRows * kTop);
  std::vector<float> weights(kRows * kTop);
  kernels::route(context_, work.data(), kRows, kExperts, kTop, true, chosen.data(), weights.data());
  for (size_t row = 0; row < kRows; ++row) {
    std::vector<float> own(logits.begin() + row * kExperts, logits.begin() + (row + 1) * kExperts);
    uint32_t alone[kTop];
    float alone_weights[kTop];
    kernels::route(context_, own.data(), 1, kExperts, kTop, true, alone, alone_weights);
    ASSERT_TRUE(std::equal(alone, alone + kTop, chosen.data() + row * kTop));
    ASSERT_TRUE(same_bits(alone_weights, weights.data() + row * kTop, kTop));
  }
}

TEST_P(Moe, GathersAndCombines) {
  for (const size_t width : {1, 7, 8, 16, 33, 2048}) {
    constexpr size_t kRows = 19;
    constexpr uint32_t kTop = 3;
    const std::vector<float> x = random_floats(width, kRows * width);
    std::vector<uint32_t> sources(kRows * kTop);
    std::vector<uint32_t> places(kRows * kTop);
    for (uint32_t i = 0; i < kRows * kTop; ++i) places[i] = i * 10 % (kRows * kTop);  // 10 and 57: coprime
    for (uint32_t i = 0; i < kRows * kTop; ++i) sources[places[i]] = i / kTop;
    std::vector<float> y(kRows * kTop * width);
    kernels::gather_rows(context_, x.data(), sources, width, y.data());
    for (size_t i = 0; i < sources.size(); ++i) {
      ASSERT_TRUE(same_bits(y.data() + i * width, x.data() + sources[i] * width, width));
      for (size_t d = 0; d < width; ++d) y[i * width + d] *= static_cast<float>(i + 1);
    }
    const std::vector<float> weights = random_floats(3, kRows * kTop);
    std::vector<float> out(kRows * width, NAN);
    kernels::combine_rows(context_, y.data(), places.data(), weights.data(), kTop, out.data(), kRows, width);
    for (size_t row = 0; row < kRows; ++row) {
      for (size_t d = 0; d < width; ++d) {
        double expected = 0.0;
        double size = 0.0;
        for (uint32_t j = 0; j < kTop; ++j) {
          const size_t i = row * kTop + j;
          const double part = static_cast<double>(weights[i]) * y[places[i] * width + d];
          expected += part;
          size += std::abs(part);
        }
        ASSERT_NEAR(out[row * width + d], expected, 4e-7 * size);
      }
    }
  }
}

QUIRE_FOR_ALL_LEVELS(Moe);

}  // namespace
}  // namespace quire::test
