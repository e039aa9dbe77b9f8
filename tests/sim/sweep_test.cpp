#include "sim/sweep.h"

#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/capacity_search.h"

namespace quire::sim {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::string fault(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SweepTest, ReadsListsAndRanges) {
  EXPECT_EQ(parse_sweep("rate=1,2.5,4").flag, "rate");
  EXPECT_THAT(parse_sweep("--rate=1,2.5,4").values, ElementsAre("1", "2.5", "4"));
  EXPECT_THAT(parse_sweep("seed=3..6").values, ElementsAre("3", "4", "5", "6"));
  EXPECT_THAT(parse_sweep("users=1..40:13").values, ElementsAre("1", "14", "27", "40"));
  EXPECT_THAT(parse_sweep("cost=../a.json").values, ElementsAre("../a.json"));
  EXPECT_THAT(parse_sweep("output-len=uniform:1:9,lognormal:40:0.7").values,
              ElementsAre("uniform:1:9", "lognormal:40:0.7"));
}

TEST(SweepTest, NamesWhatIsWrong) {
  for (const char* text : {"rate", "rate=", "=1", ""}) {
    EXPECT_THAT(fault([&] { parse_sweep(text); }), HasSubstr("is not FLAG=VALUE")) << text;
  }
  EXPECT_THAT(fault([] { parse_sweep("rate=1,,2"); }), HasSubstr("an empty value"));
  EXPECT_THAT(fault([] { parse_sweep("rate=1,2,"); }), HasSubstr("an empty value"));
  EXPECT_THAT(fault([] { parse_sweep("rate=1,2,1"); }), HasSubstr("has 1 twice"));
  EXPECT_THAT(fault([] { parse_sweep("rate=9..1"); }), HasSubstr("LOW <= HIGH"));
  EXPECT_THAT(fault([] { parse_sweep("rate=0.5..2:0.5"); }), HasSubstr("a range is of whole numbers"));
  EXPECT_THAT(fault([] { parse_sweep("rate=1..2:0.5"); }), HasSubstr("a range is of whole numbers"));
  EXPECT_THAT(fault([] { parse_sweep("rate=1..9:0"); }), HasSubstr("LOW <= HIGH"));
  EXPECT_THAT(fault([] { parse_sweep("rate=0..99999999"); }), HasSubstr("more than 10000"));
}

TEST(SweepTest, CombinesAllValues) {
  EXPECT_THAT(combinations({}), ElementsAre(ElementsAre()));
  EXPECT_THAT(combinations({{"a", {"1", "2"}}, {"b", {"x", "y"}}}),
              ElementsAre(ElementsAre("1", "x"), ElementsAre("1", "y"), ElementsAre("2", "x"),
                          ElementsAre("2", "y")));
  EXPECT_THAT(fault([] { combinations({{"a", {"1"}}, {"a", {"2"}}}); }), HasSubstr("a is given twice"));
  const std::vector<std::string> many(101, "1");
  EXPECT_THAT(fault([&] { combinations({{"a", many}, {"b", many}}); }), HasSubstr("more than 10000"));
}

LoadLimit limit_at(double limit, const LoadRange& range) {
  return find_load_limit(range, [&](double load) { return load <= limit; });
}

TEST(LoadLimitTest, FindsTheLargestLoadThatIsCarried) {
  for (const double at : {0.0123, 0.7, 1.0, 3.3, 77.0, 123456.0}) {
    const LoadLimit found = limit_at(at, {});
    EXPECT_LE(found.load, at);
    EXPECT_GT(std::max(found.load * 1.01, found.load + 0.001), at);
    // What was tried is what a flag with three decimals says.
    for (const double load : found.tried) EXPECT_EQ(std::stod(fmt::format("{:.3f}", load)), load);
    EXPECT_LT(found.tried.size(), 40U);
    EXPECT_FALSE(found.is_most);
  }
}

TEST(LoadLimitTest, FindsWholeNumbersExactly) {
  const LoadRange users{.start = 8, .least = 1, .most = 1000, .parts = 1, .precision = 0};
  for (const double at : {1.0, 2.0, 7.0, 8.0, 9.0, 500.0, 999.0}) EXPECT_EQ(limit_at(at, users).load, at);
  EXPECT_EQ(limit_at(0.5, users).load, 0);
  const LoadLimit all = limit_at(5000, users);
  EXPECT_EQ(all.load, 1000);
  EXPECT_TRUE(all.is_most);
}

TEST(LoadLimitTest, SaysWhenNotEvenTheLeastIsCarried) {
  const LoadLimit none = limit_at(0.0001, {});
  EXPECT_EQ(none.load, 0);
  EXPECT_FALSE(none.is_most);
}

}  // namespace
}  // namespace quire::sim
