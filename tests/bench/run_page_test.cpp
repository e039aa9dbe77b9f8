#include "bench/run_page.h"

#include <filesystem>
#include <fstream>
#include <string>
#include <unistd.h>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "bench/run_comparison.h"
#include "bench/run_file.h"
#include "bench/server_timeline.h"
#include "bench/sweep_page.h"
#include "sim/report_json.h"
#include "tests/support/units.h"

namespace quire::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

using test::kMillisecond;

/// Began at `arrival`, had its first token after `ttft` and four more, each after `tpot`; milliseconds.
LoadSample answered(uint64_t number, Nanos arrival, Nanos ttft, Nanos tpot) {
  LoadSample out{.arrival = arrival * kMillisecond,
                 .first = (arrival + ttft) * kMillisecond,
                 .end = (arrival + ttft + 4 * tpot) * kMillisecond,
                 .number = number,
                 .prompt_tokens = 40,
                 .tokens = 5,
                 .wanted_tokens = 5,
                 .cached_tokens = 24};
  out.gaps.assign(4, tpot * kMillisecond);
  return out;
}

RunData load_run(const std::vector<LoadSample>& samples, const sim::Slo& slo = {}) {
  return run_of(report_load(samples, samples.size(), 100 * kMillisecond, slo), samples, {});
}

TEST(RunPage, ShowsTextAsText) {
  const std::vector<LoadSample> samples = {answered(1, 0, 10, 5),
                                           answered(2, 3, 20, 7),
                                           {.end = 5 * kMillisecond,
                                            .number = 3,
                                            .tokens = 3,
                                            .wanted_tokens = 5,
                                            .error = "<script>alert(1)</script>"}};
  RunData run = load_run(samples, {.ttft = 15 * kMillisecond});
  run.settings = {{"model", "a<b>&\"c\""}, {"<script>x</script>", "--"}};
  RunData other = run;
  other.name = "<script>name</script>";
  other.settings = {{"model", "<script>other</script>"}};
  for (const std::string& page : {run_page(run), run_page(run, &other), comparison_page(other, run)}) {
    EXPECT_THAT(page, Not(HasSubstr("<script")));
    EXPECT_THAT(page, HasSubstr("a&lt;b&gt;&amp;&quot;c&quot;"));
    EXPECT_THAT(page, Not(HasSubstr("nan")));
    EXPECT_THAT(page, Not(HasSubstr("inf")));
  }
  EXPECT_THAT(run_page(run), HasSubstr("&lt;script&gt;alert(1)"));
  EXPECT_THAT(run_page(run), HasSubstr("(1 of 2)"));
  EXPECT_THAT(run_page(run, &other), HasSubstr("&lt;script&gt;name"));
}

TEST(RunPage, SaysWhatIsNotKnown) {
  const RunData run = load_run({answered(1, 0, 10, 5)});
  EXPECT_THAT(run_page(run), HasSubstr("over time are not known: the server's /metrics"));
  EXPECT_THAT(run_page(run), Not(HasSubstr("K/V pool")));
}

TEST(RunPage, HasTheHitsByDepth) {
  // 40 tokens of a prompt, of which the first 24 were hits: all of 0 to 15, half of 16 to 31, none of the
  // rest.
  const std::string page = run_page(load_run({answered(1, 0, 10, 5), answered(2, 5, 10, 5)}));
  const size_t at = page.find("Prefix hits by depth</b>");
  ASSERT_NE(at, std::string::npos);
  const std::string figure = page.substr(at);
  EXPECT_THAT(figure, HasSubstr("<th scope=\"row\">0+</th><td>100</td>"));
  EXPECT_THAT(figure, HasSubstr("<th scope=\"row\">16+</th><td>50</td>"));
  EXPECT_THAT(figure, HasSubstr("<th scope=\"row\">32+</th><td>0</td>"));
}

TEST(RunPage, StaysSmall) {
  std::vector<LoadSample> samples;
  for (uint64_t i = 0; i < 50'000; ++i) {
    samples.push_back(answered(i + 1, static_cast<Nanos>(i), static_cast<Nanos>(5 + i % 997), 3));
  }
  RunData run = run_of(report_load(samples, samples.size(), 51'000 * kMillisecond, {.ttft = kMillisecond}),
                       samples, {});
  EXPECT_LT(run_page(run).size(), 500'000U);
}

TEST(ServerTimeline, HasTheGrowthOfCountersBetweenReadings) {
  ServerTimeline timeline;
  timeline.take(0, "other 1\n");
  const auto metrics = [](int running, int waiting, double usage, int hits) {
    return fmt::format(
        "vllm:num_requests_running{{m=\"x\"}} {}\nvllm:num_requests_waiting {}\nvllm:kv_cache_usage_perc {}\n"
        "vllm:prefix_cache_queries_total 100{}\nvllm:prefix_cache_hits_total {}\nvllm:num_preemptions_total "
        "3\n",
        running, waiting, usage, hits, hits);
  };
  timeline.take(kMillisecond, metrics(2, 0, 0.25, 5));
  EXPECT_TRUE(timeline.timeline().buckets().empty());
  timeline.take(3 * kMillisecond, metrics(4, 6, 0.75, 9));
  timeline.take(4 * kMillisecond, metrics(0, 0, 0, 0));  // started anew: its counters are 0
  const auto& buckets = timeline.timeline().buckets();
  ASSERT_EQ(buckets.size(), 4U);
  EXPECT_EQ(buckets[0].covered, 0);
  EXPECT_DOUBLE_EQ(buckets[1].mean(&sim::Timeline::Bucket::running), 3);
  EXPECT_DOUBLE_EQ(buckets[2].mean(&sim::Timeline::Bucket::waiting), 3);
  EXPECT_DOUBLE_EQ(buckets[2].mean(&sim::Timeline::Bucket::held), 0.5);
  EXPECT_EQ(buckets[2].hit_tokens, 4U);
  EXPECT_EQ(buckets[3].hit_tokens, 0U);
  EXPECT_EQ(buckets[3].preemptions, 0U);
}

TEST(RunComparison, PairsTheSameRequests) {
  const RunData a = load_run({answered(1, 0, 10, 5), answered(2, 0, 20, 5), answered(3, 0, 30, 5)});
  std::vector<LoadSample> samples = {answered(3, 0, 36, 5), answered(1, 0, 12, 5), answered(2, 0, 50, 5),
                                     answered(4, 0, 99, 5)};
  samples[2].prompt_tokens = 41;  // another prompt: not the same request
  RunData b = load_run(samples);
  b.settings = {{"x", "1"}, {"same", "s"}};
  RunData with = a;
  with.settings = {{"x", "2"}, {"same", "s"}, {"only", "o"}};
  const Comparison of = compare(with, b);
  EXPECT_EQ(of.common, 3U);
  EXPECT_EQ(of.paired, 2U);
  ASSERT_EQ(of.times.size(), 3U);
  EXPECT_EQ(of.times[0].name, "TTFT");
  EXPECT_EQ(of.times[0].median, 6 * kMillisecond);
  EXPECT_EQ(of.times[0].slower, 2U);
  EXPECT_EQ(of.times[1].slower, 0U);
  ASSERT_EQ(of.settings.size(), 2U);
  EXPECT_EQ(of.settings[0].a, "2");
  EXPECT_EQ(of.settings[0].b, "1");
  EXPECT_FALSE(of.settings[1].b);
  const auto figure = std::ranges::find(of.figures, "finished", &ComparedFigure::name);
  ASSERT_NE(figure, of.figures.end());
  EXPECT_DOUBLE_EQ(*figure->ratio(), 4.0 / 3);
}

class RunFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }
  RunData read(const std::string& text) const {
    std::ofstream(path_) << text;
    return read_run(path_);
  }
  std::string refusal(const std::string& text) const {
    try {
      read(text);
    } catch (const Error& error) {
      return error.what();
    }
    return "none";
  }
  /// What bench serve --json writes.
  static boost::json::object load_json() {
    const std::vector<LoadSample> samples = {
        answered(2, 0, 10, 5),
        answered(1, 3, 20, 7),
        {.end = 5 * kMillisecond, .number = 3, .tokens = 3, .wanted_tokens = 5, .error = "lost"}};
    boost::json::object root{{"model", "m"}, {"url", "u"}, {"flags", {{"--rate", "2"}}}};
    for (auto& [key, value] :
         to_json(report_load(samples, 3, 100 * kMillisecond, {.ttft = 15 * kMillisecond})))
      root[key] = value;
    add_requests(root, samples);
    return root;
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("quire_run_file_{}", getpid());
};

TEST_F(RunFile, HasWhatALoadWrote) {
  const RunData run = read(boost::json::serialize(load_json()));
  EXPECT_EQ(run.name, path_.filename());
  EXPECT_EQ(run.requests, 3U);
  EXPECT_EQ(run.finished, 2U);
  EXPECT_EQ(run.not_finished, 1U);
  EXPECT_EQ(run.good, 1U);
  EXPECT_EQ(run.slo.ttft, 15 * kMillisecond);
  EXPECT_DOUBLE_EQ(run.seconds, 0.1);
  ASSERT_EQ(run.records.size(), 3U);
  EXPECT_EQ(run.records[0].number, 2U);
  EXPECT_EQ(run.records[0].ttft(), 10 * kMillisecond);
  EXPECT_EQ(run.records[0].tpot, 5 * kMillisecond);
  EXPECT_EQ(run.records[0].cached_tokens, 24U);
  EXPECT_FALSE(run.records[2].finished);
  EXPECT_THAT(run.settings, testing::Contains(testing::Pair("--rate", "2")));
  double tokens = 0;
  for (const auto& [at, rate] : run.output_rate)
    tokens += rate * 0.1 / static_cast<double>(run.output_rate.size());
  EXPECT_NEAR(tokens, 10, 1e-6);
}

TEST_F(RunFile, HasNoTimesWhereNothingFinished) {
  const std::vector<LoadSample> samples = {
      {.end = 5 * kMillisecond, .number = 1, .tokens = 0, .wanted_tokens = 5, .error = "lost"}};
  boost::json::object root{{"model", "m"}, {"url", "u"}};
  for (auto& [key, value] : to_json(report_load(samples, 1, 100 * kMillisecond, {.ttft = 15 * kMillisecond})))
    root[key] = value;
  add_requests(root, samples);
  const auto has_times = [](const RunData& run) {
    return run.ttft || run.tpot || run.itl || run.e2e || run.queue;
  };
  const RunData none = read(boost::json::serialize(root));
  EXPECT_FALSE(has_times(none));
  const RunData some = read(boost::json::serialize(load_json()));
  EXPECT_TRUE(some.ttft && some.tpot && some.itl && some.e2e);
  for (const ComparedFigure& each : compare(none, some).figures) {
    const bool is_time = each.unit == "ms";
    EXPECT_EQ(each.a.has_value(), !is_time) << each.name;
  }
  EXPECT_THAT(run_page(some, &none), Not(HasSubstr("nan")));
  EXPECT_THAT(run_page(none, &some), HasSubstr("Two runs side by side"));
  // Files of before have zeros there.
  for (const char* times : {"ttft_ns", "tpot_ns", "itl_ns", "e2e_ns"}) {
    root[times] = {{"mean", 0}, {"p50", 0}, {"p90", 0}, {"p99", 0}, {"max", 0}};
  }
  EXPECT_FALSE(has_times(read(boost::json::serialize(root))));
  root["finished"] = 1;
  root["ttft_ns"] = nullptr;
  EXPECT_THAT(refusal(boost::json::serialize(root)), HasSubstr("ttft_ns"));
}

TEST_F(RunFile, HasWhatASimulationWrote) {
  sim::WorkloadConfig load;
  load.num_requests = 30;
  load.rate_thousandths = 5'000;
  load.prompt = sim::Lengths::parse("40", "");
  load.output = sim::Lengths::parse("uniform:1:30", "");
  const sim::Workload workload = make_workload(load);
  sim::SimulationConfig config;
  config.scheduler.num_blocks = 100;
  config.scheduler.max_model_len = 100;
  sim::Simulation simulation(config, workload);
  const sim::Slo slo{.ttft = 100 * kMillisecond};
  const sim::ReportBuilder builder(simulation, slo);
  const sim::KeptRequests requests(simulation);
  simulation.run();
  boost::json::object root = to_json(builder.report(), config, slo);
  add_requests(root, builder, requests);
  const RunData written = run_of(builder, requests, {});
  const RunData run = read(boost::json::serialize(root));
  ASSERT_EQ(run.records.size(), 30U);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(run.records[i].number, written.records[i].number);
    EXPECT_EQ(run.records[i].end, written.records[i].end);
    EXPECT_EQ(run.records[i].tpot, written.records[i].tpot);
    EXPECT_EQ(run.records[i].cached_tokens, written.records[i].cached_tokens);
  }
  const Comparison of = compare(run, written);
  for (const ComparedFigure& figure : of.figures) EXPECT_EQ(figure.a, figure.b) << figure.name;
  EXPECT_EQ(of.paired, 30U);
  EXPECT_THAT(run.settings, testing::Contains(testing::Pair("scheduler: num_blocks", "100")));
}

TEST_F(RunFile, NamesWhatIsWrong) {
  const boost::json::object good = load_json();
  const auto with = [&](const char* key, boost::json::value value) {
    boost::json::object root = good;
    root[key] = std::move(value);
    return refusal(boost::json::serialize(root));
  };
  const std::string place = path_.string() + ": ";
  EXPECT_THAT(refusal("{\"scheduler\":"), testing::StartsWith(place + "at byte"));
  EXPECT_THAT(refusal("{}"), HasSubstr("neither a result of quire simulate"));
  EXPECT_THAT(refusal("{\"sweep\":[],\"runs\":[]}"), HasSubstr("is a sweep"));
  EXPECT_THAT(with("rows", boost::json::array()), HasSubstr("key 'rows': is a table of several loads"));
  EXPECT_THAT(with("finished", -1), HasSubstr(place + "key 'finished': -1 is out of range"));
  EXPECT_THAT(with("ttft_ns", {{"mean", 1}}), HasSubstr("key 'ttft_ns.p50': missing"));
  EXPECT_THAT(with("elapsed_ns", "soon"), HasSubstr("key 'elapsed_ns': an integer"));
  EXPECT_THAT(with("record_fields", nullptr), HasSubstr("key 'record_fields': an array"));
  EXPECT_THAT(with("record_fields", {"a"}), HasSubstr("key 'record_fields': has no arrival_ns"));
  EXPECT_THAT(with("records", {{1, 2}}), HasSubstr("key 'records': record 1: 8 fields"));
  EXPECT_THAT(with("records", {{5, 4, 9, 1, 1, nullptr, 1, nullptr}}),
              HasSubstr("key 'records': record 1: its times are not in order"));
  EXPECT_THAT(with("records", {{1, 4, 9, "x", 1, nullptr, 1, nullptr}}),
              HasSubstr("key 'records': record 1: field 4: a whole number"));
  EXPECT_EQ(with("records", nullptr), "none");
}

TEST(SweepPage, HasALineForEachCombinationOverTheNumbers) {
  sim::SimulationReport report;
  report.elapsed = 1'000'000'000;
  SweepData sweep{.title = "t<",
                  .flags = {"policy", "rate"},
                  .slo = {.ttft = kMillisecond},
                  .settings = {{"<i>", "<b>"}}};
  for (const char* policy : {"fcfs", "<script>"}) {
    for (const char* rate : {"1", "4"}) sweep.runs.push_back({{policy, rate}, {}, &report});
  }
  sweep.table = {{"policy", "rate"}, {{"fcfs", "1"}}};
  const std::string page = sweep_page(sweep);
  EXPECT_THAT(page, Not(HasSubstr("<script")));
  EXPECT_THAT(page, HasSubstr("policy fcfs</span>"));
  EXPECT_THAT(page, HasSubstr("text-anchor=\"end\">rate</text>"));
  EXPECT_THAT(page, HasSubstr("Objectives met"));
  EXPECT_THAT(page, Not(HasSubstr("class=\"bar ")));
  sweep.flags = {"policy"};
  for (SweepRun& run : sweep.runs) run.values.resize(1);
  EXPECT_THAT(sweep_page(sweep), HasSubstr("class=\"bar s0\""));
  sweep.runs.clear();
  EXPECT_THAT(sweep_page(sweep), Not(HasSubstr("<svg")));
}

}  // namespace
}  // namespace quire::bench
