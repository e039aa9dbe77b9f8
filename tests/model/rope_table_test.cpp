#include "model/rope_table.h"

#include <cmath>

#include <gtest/gtest.h>

// Expected values: an independent computation from the published formulas in Python.
namespace quire::model {
namespace {

void expect_frequencies(const RopeConfig& config, const std::vector<double>& expected,
                        double attention_factor, uint32_t longest = 1) {
  const RopeFrequencies got = rope_frequencies(config, static_cast<uint32_t>(2 * expected.size()), longest);
  ASSERT_EQ(got.inverse.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(got.inverse[i] / expected[i], 1.0, 1e-12) << i;
  }
  EXPECT_NEAR(got.attention_factor, attention_factor, 1e-12);
}

TEST(RopeFrequencies, Llama3) {
  RopeConfig config;
  config.theta = 500000.0;
  config.scaling = RopeScaling::kLlama3;
  config.factor = 8.0;
  config.original_max_positions = 512.0;
  expect_frequencies(
      config,
      {1, 0.44036660267178046, 0.19392274474868576, 0.085397100285765609, 0.027344137314721299,
       0.0037580209368928241, 0.00091158309215213867, 0.00040143074934407386, 0.00017677669529663688,
       7.7846552739324498e-05, 3.4281021959525912e-05, 1.509621717643313e-05, 6.6478698711812354e-06,
       2.9274998701761677e-06, 1.2891731721515574e-06, 5.6770881007598369e-07},
      1.0);
}

TEST(RopeFrequencies, Linear) {
  RopeConfig config;
  config.scaling = RopeScaling::kLinear;
  config.factor = 4.0;
  expect_frequencies(
      config,
      {0.25, 0.079056941504209485, 0.025000000000000001, 0.0079056941504209478, 0.0025000000000000001,
       0.00079056941504209485, 0.00025000000000000001, 7.9056941504209485e-05},
      1.0);
}

TEST(RopeFrequencies, Yarn) {
  RopeConfig config;
  config.theta = 1e6;
  config.scaling = RopeScaling::kYarn;
  config.factor = 4.0;
  config.original_max_positions = 4096.0;
  const std::vector<double> expected = {1,
                                        0.42169650342858223,
                                        0.17782794100389229,
                                        0.074989420933245579,
                                        0.026879360111431223,
                                        0.0093346500251432693,
                                        0.0030928772885469198,
                                        0.00094854948226466204,
                                        0.00025000000000000001,
                                        0.00010542412585714556,
                                        4.4456985250973067e-05,
                                        1.8747355233311396e-05,
                                        7.9056941504209488e-06,
                                        3.3338035804083101e-06,
                                        1.4058533129758728e-06,
                                        5.928434264154138e-07};
  expect_frequencies(config, expected, 1.138629436111989);
  config.mscale = 0.7;
  config.mscale_all_dim = 1.2;
  expect_frequencies(config, expected, 0.9405715251010841);
  config.attention_factor = 1.25;
  expect_frequencies(config, expected, 1.25);
}

TEST(RopeFrequencies, YarnWithoutTruncation) {
  RopeConfig config;
  config.scaling = RopeScaling::kYarn;
  config.factor = 8.0;
  config.original_max_positions = 300.0;
  config.beta_fast = 20.0;
  config.beta_slow = 2.0;
  config.truncate = false;
  expect_frequencies(config,
                     {1, 0.28244593386300315, 0.045567246686037038, 0.0039528470752104739, 0.00125,
                      0.00039528470752104742, 0.000125, 3.9528470752104742e-05},
                     0.1 * std::log(8.0) + 1.0);
}

TEST(RopeFrequencies, LongropeByTheLongestSequence) {
  RopeConfig config;
  config.scaling = RopeScaling::kLongrope;
  config.factor = 8.0;
  config.original_max_positions = 64.0;
  config.short_factors = {1.0, 1.25, 1.5, 2.0};
  config.long_factors = {1.5, 3.0, 6.0, 12.0};
  const double magnitude = std::sqrt(1.5);  // sqrt(1 + ln 8 / ln 64)
  expect_frequencies(config, {1.0, 0.08, 0.01 / 1.5, 0.0005}, magnitude, 64);
  expect_frequencies(config, {1.0 / 1.5, 0.1 / 3.0, 0.01 / 6.0, 0.001 / 12.0}, magnitude, 65);
  config.attention_factor = 1.25;
  expect_frequencies(config, {1.0, 0.08, 0.01 / 1.5, 0.0005}, 1.25, 64);
}

TEST(RopeTable, GrowsWithoutChanging) {
  RopeConfig config;
  config.scaling = RopeScaling::kYarn;
  config.factor = 4.0;
  config.original_max_positions = 1024.0;
  RopeTable table(config, 8, 5000);
  const float* first = table.at_least(1);
  const std::vector<float> before(first, first + 1024 * 8);
  const float* grown = table.at_least(5000);
  EXPECT_TRUE(std::equal(before.begin(), before.end(), grown));
  const RopeFrequencies f = rope_frequencies(config, 8, 1);
  for (const size_t position : {size_t{0}, size_t{17}, size_t{1500}, size_t{4999}}) {
    for (size_t i = 0; i < 4; ++i) {
      const double angle = static_cast<double>(position) * f.inverse[i];
      EXPECT_FLOAT_EQ(grown[position * 8 + i], static_cast<float>(std::cos(angle) * f.attention_factor));
      EXPECT_FLOAT_EQ(grown[position * 8 + 4 + i], static_cast<float>(std::sin(angle) * f.attention_factor));
    }
  }
}

}  // namespace
}  // namespace quire::model
