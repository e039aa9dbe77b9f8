#include "bench/load_report.h"

#include <string>
#include <vector>

#include <boost/json.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "bench/plot.h"
#include "bench/run_page.h"
#include "tests/support/units.h"

namespace quire::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

using test::kMillisecond;

/// Began at `arrival`, had its first token after `ttft` and four more, each after `tpot`; milliseconds.
LoadSample sample(Nanos arrival, Nanos ttft, Nanos tpot) {
  LoadSample out{.arrival = arrival * kMillisecond,
                 .first = (arrival + ttft) * kMillisecond,
                 .end = (arrival + ttft + 4 * tpot) * kMillisecond,
                 .prompt_tokens = 10,
                 .tokens = 5,
                 .wanted_tokens = 5};
  out.gaps.assign(4, tpot * kMillisecond);
  return out;
}

LoadSample failure(std::string error) {
  return {.end = 5 * kMillisecond, .tokens = 3, .wanted_tokens = 5, .error = std::move(error)};
}

TEST(LoadReport, HasTheTimesOfWhatFinished) {
  std::vector<LoadSample> samples;
  for (Nanos i = 1; i <= 100; ++i) samples.push_back(sample(i, i, 2 * i));
  samples.push_back(failure("broken"));
  const LoadReport report = report_load(samples, 103, 2000 * kMillisecond, {});
  EXPECT_EQ(report.finished, 100U);
  EXPECT_EQ(report.failed, 1U);
  EXPECT_EQ(report.unfinished, 2U);
  EXPECT_EQ(report.short_answers, 0U);
  EXPECT_EQ(report.prompt_tokens, 1000U);
  EXPECT_EQ(report.output_tokens, 500U);
  EXPECT_DOUBLE_EQ(report.per_second(report.output_tokens), 250);
  EXPECT_EQ(report.ttft.p50, 50 * kMillisecond);
  EXPECT_EQ(report.ttft.p99, 99 * kMillisecond);
  EXPECT_EQ(report.ttft.max, 100 * kMillisecond);
  EXPECT_EQ(report.tpot.p90, 180 * kMillisecond);
  EXPECT_EQ(report.itl.p90, 180 * kMillisecond);
  EXPECT_EQ(report.e2e.max, (100 + 8 * 100) * kMillisecond);
}

TEST(LoadReport, CountsWhatKeepsToTheObjective) {
  const std::vector<LoadSample> samples = {sample(0, 10, 5), sample(0, 11, 5), sample(0, 10, 6),
                                           failure("no")};
  const auto good = [&](const sim::Slo& slo) { return report_load(samples, 4, kMillisecond, slo).good; };
  EXPECT_EQ(good({}), 3U);
  EXPECT_EQ(good({.ttft = 10 * kMillisecond}), 2U);
  EXPECT_EQ(good({.tpot = 5 * kMillisecond}), 2U);
  EXPECT_EQ(good({.ttft = 10 * kMillisecond, .tpot = 5 * kMillisecond}), 1U);
  EXPECT_EQ(good({.ttft = 9 * kMillisecond}), 0U);
  // A single token has no time per further token to miss.
  LoadSample one = sample(0, 10, 6);
  one.tokens = 1;
  EXPECT_FALSE(one.tpot());
  EXPECT_TRUE(one.meets({.tpot = kMillisecond}));
}

TEST(LoadReport, TellsErrorsThatDifferInNumbersOnce) {
  std::vector<LoadSample> samples = {failure("reset")};
  for (int i = 0; i < 3; ++i) samples.push_back(failure("status 400: " + std::to_string(i * 50) + " tokens"));
  LoadSample curt = sample(0, 1, 1);
  curt.tokens = 4;
  curt.tokens_said = false;
  samples.push_back(curt);
  const LoadReport report = report_load(samples, 5, kMillisecond, {});
  ASSERT_EQ(report.errors.size(), 2U);
  EXPECT_EQ(report.errors[0].count, 3U);
  EXPECT_EQ(report.errors[0].example, "status 400: 0 tokens");
  EXPECT_EQ(report.errors[1].example, "reset");
  EXPECT_EQ(report.short_answers, 1U);
  EXPECT_FALSE(report.tokens_said);
  const auto root = to_json(report);
  EXPECT_TRUE(root.at("good").is_null());
  EXPECT_TRUE(root.at("tokens_are_pieces").as_bool());
  EXPECT_EQ(root.at("errors").at(0).at("count").to_number<int>(), 3);
}

TEST(LoadReport, OfNothing) {
  const LoadReport report = report_load({}, 7, 0, {.ttft = kMillisecond});
  EXPECT_EQ(report.unfinished, 7U);
  EXPECT_EQ(report.per_second(report.finished), 0);
  EXPECT_EQ(to_json(report).at("good_requests_per_second").as_double(), 0);
  for (const char* times : {"ttft_ns", "tpot_ns", "itl_ns", "e2e_ns"}) {
    EXPECT_TRUE(to_json(report).at(times).is_null()) << "0 would look best";
  }
  const std::string page = run_page(run_of(report, {}, {}));
  EXPECT_THAT(page, HasSubstr("no data"));
  EXPECT_THAT(page, Not(HasSubstr("Times in milliseconds")));
}

TEST(LoadReport, OfAnswersOfOneToken) {
  const LoadSample one{
      .first = 5 * kMillisecond, .end = 5 * kMillisecond, .number = 1, .tokens = 1, .wanted_tokens = 1};
  const auto root = to_json(report_load(std::vector<LoadSample>{one}, 1, 9 * kMillisecond, {}));
  EXPECT_TRUE(root.at("tpot_ns").is_null() && root.at("itl_ns").is_null()) << "0 would look best";
  EXPECT_TRUE(root.at("ttft_ns").is_object() && root.at("e2e_ns").is_object());
}

TEST(Plot, DrawsAnyRangeOfValues) {
  for (const bool is_log : {false, true}) {
    for (const double high : {0.0, 1e-9, 0.3, 1.0, 7.0, 999.0, 1000.0, 1e6, 3e12}) {
      const PlotSeries series[] = {{"a", {{0, 0}, {high / 2, high / 3}, {high, high}}}};
      const std::string text =
          plot_figure("t", {"x"}, {.label = "y", .is_log = is_log}, series, PlotMark::kLine);
      EXPECT_THAT(text, HasSubstr("<svg"));
      EXPECT_THAT(text, Not(HasSubstr("nan"))) << high;
      EXPECT_LT(text.size(), 10'000U) << high;
    }
  }
}

TEST(Plot, DotsThatFallTogetherAreOne) {
  PlotSeries series{"a", {}};
  for (int i = 0; i < 200'000; ++i) series.points.emplace_back(i % 100, i % 7);
  EXPECT_LT(plot_figure("t", {"x"}, {"y"}, std::span(&series, 1), PlotMark::kDots).size(), 20'000U);
}

}  // namespace
}  // namespace quire::bench
