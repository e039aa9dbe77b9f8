#include "grammar/numbers.h"

#include <cmath>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/grammar/follow.h"

namespace quire::grammar {
namespace {

TEST(Numbers, IntegersWithinBoundsAreExactlyThose) {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    NumberBounds bounds;
    const int low = static_cast<int>(random() % 400) - 200;
    const int high = low + static_cast<int>(random() % 250);
    if (random() % 4 != 0) bounds.min = low + (random() % 3 == 0 ? 0.5 : 0);
    if (random() % 4 != 0) bounds.max = high;
    bounds.min_exclusive = random() % 2 == 0;
    bounds.max_exclusive = random() % 2 == 0;
    bool unsupported = false;
    const auto expression = integers_within(bounds, 1, unsupported);
    EXPECT_FALSE(unsupported);
    for (int value = -450; value <= 450; ++value) {
      const bool above =
          !bounds.min || value > *bounds.min || (!bounds.min_exclusive && value == *bounds.min);
      const bool below =
          !bounds.max || value < *bounds.max || (!bounds.max_exclusive && value == *bounds.max);
      ASSERT_EQ(expression && matches(*expression, std::to_string(value)), above && below)
          << value << " in " << bounds.min.value_or(-1e9) << " " << bounds.max.value_or(1e9);
    }
    if (expression) {
      for (const char* bad : {"", "-", "-0", "01", "1.0", "1e2", "+1"})
        EXPECT_FALSE(matches(*expression, bad)) << bad;
    }
  }
}

TEST(Numbers, MultiplesAreListedOrEndRight) {
  bool unsupported = false;
  NumberBounds bounds;
  const auto any = integers_within(bounds, 25, unsupported);
  for (const char* good : {"0", "25", "100", "-75", "123450"}) EXPECT_TRUE(matches(*any, good)) << good;
  for (const char* bad : {"10", "26", "-5", "1005", "025"}) EXPECT_FALSE(matches(*any, bad)) << bad;
  bounds = {.min = -10, .max = 10};
  const auto threes = integers_within(bounds, 3, unsupported);
  for (int value = -12; value <= 12; ++value) {
    EXPECT_EQ(matches(*threes, std::to_string(value)), value % 3 == 0 && value > -10 && value < 10) << value;
  }
  EXPECT_FALSE(unsupported);
  integers_within({}, 7, unsupported);
  EXPECT_TRUE(unsupported);
}

// No text outside the bounds, and every short one inside, but for exponents.
TEST(Numbers, DecimalsWithinBounds) {
  std::mt19937 random(2);
  const double values[] = {-1000, -99.99, -2.5, -0.125, 0, 0.1, 0.75, 1, 3, 17.25, 1e-7, 5000};
  for (int round = 0; round < 200; ++round) {
    NumberBounds bounds;
    const double a = values[random() % std::size(values)];
    const double b = values[random() % std::size(values)];
    if (random() % 4 != 0) bounds.min = std::min(a, b);
    if (random() % 4 != 0) bounds.max = std::max(a, b);
    bounds.min_exclusive = random() % 2 == 0;
    bounds.max_exclusive = random() % 2 == 0;
    const auto expression = numbers_within(bounds);
    for (int i = 0; i < 400; ++i) {
      const int digits = static_cast<int>(random() % 4);
      const std::string text = fmt::format(
          "{:.{}f}", (static_cast<double>(random() % 20001) - 10000) / (i % 2 == 0 ? 1000.0 : 7.0), digits);
      if (text.starts_with("-0") && text.find_first_not_of("-0.") == std::string::npos) continue;
      const double value = std::stod(text);
      const bool above =
          !bounds.min || value > *bounds.min || (!bounds.min_exclusive && value == *bounds.min);
      const bool below =
          !bounds.max || value < *bounds.max || (!bounds.max_exclusive && value == *bounds.max);
      if (expression && matches(*expression, text)) {
        ASSERT_TRUE(above && below) << text << " in " << bounds.min.value_or(-1e9) << " "
                                    << bounds.max.value_or(1e9);
      } else if (digits <= 1 && above && below && value != 0) {
        ADD_FAILURE() << text << " is refused in " << bounds.min.value_or(-1e9)
                      << (bounds.min_exclusive ? " ( " : " [ ") << bounds.max.value_or(1e9);
      }
    }
  }
  EXPECT_FALSE(numbers_within({.min = 3, .max = 2}));
}

TEST(Numbers, IntegersAreExactBeyondWhatADoubleHolds) {
  struct Case {
    NumberBounds bounds;
    std::vector<const char*> yes;
    std::vector<const char*> no;
  };
  const Number most = 9223372036854775807;
  const Case cases[] = {
      {{.min = 9223372036854770000, .max = most},
       {"9223372036854770000", "9223372036854775807"},
       {"9223372036854775808", "9223372036854769999", "9502010312140344600", "5"}},
      {{.min = -most - 1, .max = -most},
       {"-9223372036854775808", "-9223372036854775807"},
       {"-9223372036854775809", "-9223372036854775806"}},
      {{.min = 9007199254740992, .max = 9007199254740995, .min_exclusive = true},
       {"9007199254740993", "9007199254740995"},
       {"9007199254740992", "9007199254740996"}},
      {{.min = 9999999999999999998ULL}, {"9999999999999999998"}, {"9999999999999999997"}},
      {{.max = 1e300}, {"9999999999999999999"}, {"99999999999999999999"}},
  };
  for (const Case& each : cases) {
    bool unsupported = false;
    const auto expression = integers_within(each.bounds, 1, unsupported);
    ASSERT_TRUE(expression);
    for (const char* text : each.yes) EXPECT_TRUE(matches(*expression, text)) << text;
    for (const char* text : each.no) EXPECT_FALSE(matches(*expression, text)) << text;
  }
}

// As a reader takes them that has doubles only.
TEST(Numbers, DecimalsKeepWithinBoundsOfManyDigits) {
  std::mt19937_64 random(3);
  for (int round = 0; round < 400; ++round) {
    const double scale = std::pow(10.0, static_cast<double>(random() % 12) - 3);
    const double low = (static_cast<double>(random() % 1'000'000'007) / 1e9 - 0.5) * scale;
    const double high = random() % 4 == 0 ? low : low + static_cast<double>(random() % 97) * scale / 1e7;
    const NumberBounds bounds{
        .min = low, .max = high, .min_exclusive = random() % 3 == 0, .max_exclusive = random() % 3 == 0};
    const auto expression = numbers_within(bounds);
    if (!expression) continue;
    for (int i = 0; i < 60; ++i) {
      const double near = random() % 2 == 0 ? low : high;
      const std::string text = fmt::format(
          "{:.{}f}", near + (static_cast<double>(random() % 9) - 4) * scale / 1e12, random() % 18);
      if (!matches(*expression, text)) continue;
      const double value = std::stod(text);
      EXPECT_TRUE(bounds.min_exclusive ? value > low : value >= low)
          << text << fmt::format(" {} {}", low, high);
      EXPECT_TRUE(bounds.max_exclusive ? value < high : value <= high)
          << text << fmt::format(" {} {}", low, high);
    }
  }
  const auto only = numbers_within({.min = 123456789.12345679, .max = 123456789.12345679});
  ASSERT_TRUE(only);
  EXPECT_TRUE(matches(*only, "123456789.12345679"));
  EXPECT_FALSE(matches(*only, "123456789.1234568"));
}

}  // namespace
}  // namespace quire::grammar
