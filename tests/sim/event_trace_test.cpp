#include "sim/event_trace.h"

#include <filesystem>
#include <map>
#include <string>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/json.h"

namespace quire::sim {
namespace {

struct BusyRun {
  SimulationConfig config;
  Workload workload;
};

BusyRun busy_run() {
  BusyRun run;
  run.config.scheduler.num_blocks = 48;
  run.config.scheduler.max_num_seqs = 16;
  run.config.scheduler.max_num_batched_tokens = 128;
  run.config.scheduler.max_model_len = 300;
  run.config.scheduler.max_waiting = 10'000;
  WorkloadConfig load;
  load.num_requests = 60;
  load.rate_thousandths = 20'000;
  load.prompt = Lengths::parse("lognormal:70:0.7:400", "");
  load.output = Lengths::parse("uniform:1:120", "");
  run.workload = make_workload(load);
  return run;
}

class EventTraceFile : public testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  /// The events, after `steps` steps.
  json::array trace(const BusyRun& run, uint64_t steps) {
    Simulation simulation(run.config, run.workload);
    EventTrace trace(path_, simulation);
    simulation.listen(trace);
    while (steps-- > 0 && simulation.step()) {
    }
    simulation.break_off();
    trace.end();
    totals_ = simulation.totals();
    preemptions_ = simulation.stats().total_preemptions;
    return read_json_file(path_).as_object().at("traceEvents").as_array();
  }

  const std::filesystem::path path_ =
      std::filesystem::temp_directory_path() / fmt::format("quire_event_trace_{}", getpid());
  SimulationTotals totals_;
  uint64_t preemptions_ = 0;
};

std::string text(const json::value& event, const char* key) { return std::string(event.at(key).as_string()); }

TEST_F(EventTraceFile, HasEachStepAndEachRequest) {
  const json::array events = trace(busy_run(), UINT64_MAX);
  std::map<std::string, uint64_t> counts;
  std::map<int64_t, std::vector<std::pair<std::string, double>>> open;
  double last_end = 0;
  for (const json::value& event : events) {
    const std::string phase = text(event, "ph");
    ++counts[phase == "n" || phase == "i" ? text(event, "name") : phase];
    if (phase == "X") {
      const double begin = event.at("ts").to_number<double>();
      EXPECT_GE(begin, last_end - 1e-3);  // steps follow each other on the device
      last_end = begin + event.at("dur").to_number<double>();
    }
    if (phase != "b" && phase != "e") continue;
    auto& stack = open[event.at("id").to_number<int64_t>()];
    const double at = event.at("ts").to_number<double>();
    if (phase == "b") {
      EXPECT_TRUE(stack.empty() || at >= stack.back().second);
      stack.emplace_back(text(event, "name"), at);
    } else {
      ASSERT_FALSE(stack.empty());
      EXPECT_EQ(stack.back().first, text(event, "name"));
      EXPECT_GE(at, stack.back().second);
      stack.pop_back();
    }
  }
  for (const auto& [id, stack] : open) EXPECT_TRUE(stack.empty()) << id;
  EXPECT_EQ(counts["X"], totals_.steps);
  EXPECT_EQ(counts["C"], 2 * totals_.steps);
  EXPECT_EQ(open.size(), totals_.finished);
  EXPECT_EQ(counts["b"], 4 * totals_.finished);
  EXPECT_EQ(counts["preempted"], preemptions_);
  EXPECT_EQ(counts["admitted again"], preemptions_);
  EXPECT_GT(preemptions_, 0U);
  EXPECT_EQ(counts["refused"], totals_.refused);
  EXPECT_GT(totals_.refused, 0U);
}

TEST_F(EventTraceFile, SaysWhoseTimesTheStepsHave) {
  BusyRun run = busy_run();
  backend::sim::FittedCost cost;
  cost.knots = {0};
  cost.device.token = cost.host.token = {1000};
  cost.model = "fox";
  cost.machine = "a \"burrow\"";
  backend::StepWork::for_each_count(cost.most, [](std::string_view, uint64_t& count) { count = UINT32_MAX; });
  cost.most.decoding = 0;
  run.config.cost = cost;
  const json::array events = trace(run, 50);
  const json::value file = read_json_file(path_);
  EXPECT_EQ(text(file.at("otherData"), "cost"), "fitted to steps of fox on a \"burrow\"");
  const int64_t extrapolated = file.at("extrapolated_steps").as_int64();
  EXPECT_GT(extrapolated, 0);
  int64_t marked = 0;
  for (const json::value& event : events) {
    if (text(event, "ph") != "X") continue;
    const json::object& args = event.at("args").as_object();
    EXPECT_EQ(args.contains("extrapolated"), args.at("decode_tokens").as_int64() > 0);
    marked += args.contains("extrapolated") ? 1 : 0;
  }
  EXPECT_EQ(marked, extrapolated);
  EXPECT_LT(marked, 50);
}

TEST_F(EventTraceFile, EndsWhatHasNotEndedWithTheRun) {
  const json::array events = trace(busy_run(), 40);
  ASSERT_LT(totals_.finished, 10U);
  uint64_t begun = 0;
  uint64_t ended = 0;
  uint64_t unfinished = 0;
  for (const json::value& event : events) {
    begun += text(event, "ph") == "b" ? 1 : 0;
    ended += text(event, "ph") == "e" ? 1 : 0;
    if (text(event, "ph") == "b" && text(event, "name") == "request") {
      unfinished += event.at("args").at("finished").as_bool() ? 0 : 1;
    }
  }
  EXPECT_EQ(begun, ended);
  EXPECT_GT(unfinished, 3U);
}

TEST_F(EventTraceFile, ChangesNothing) {
  const BusyRun run = busy_run();
  Simulation alone(run.config, run.workload);
  alone.run();
  Simulation traced(run.config, run.workload);
  EventTrace trace(path_, traced);
  traced.listen(trace);
  traced.run();
  EXPECT_EQ(traced.digest(), alone.digest());
}

}  // namespace
}  // namespace quire::sim
