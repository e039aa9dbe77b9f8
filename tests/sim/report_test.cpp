#include "sim/report.h"

#include <cstdlib>

#include <gtest/gtest.h>

#include "sim/generated_requests.h"
#include "sim/report_json.h"
#include "tests/sim/followed_simulation.h"

namespace quire::sim {
namespace {

WorkloadConfig small_requests(uint32_t count) {
  WorkloadConfig config;
  config.num_requests = count;
  config.rate_thousandths = 400'000;
  config.prompt = Lengths::parse("uniform:1:40", "");
  config.output = Lengths::parse("uniform:1:4", "");
  config.service = ServiceConfig{.num_tenants = 3, .num_priorities = 2};
  return config;
}

SimulationConfig reported() {
  SimulationConfig config;
  config.scheduler.num_blocks = 300;
  config.scheduler.max_num_seqs = 32;
  config.scheduler.max_model_len = 43;  // the longest are refused
  config.scheduler.max_waiting = 100;
  config.cost.linear()->decode = 100'000;
  return config;
}

/// `within`: one of so many parts of the exact value; 0: equal.
void expect_like(const Percentiles& found, const std::vector<Nanos>& times, Nanos within) {
  const Percentiles exact = percentiles(times);
  EXPECT_EQ(found.mean, exact.mean);
  EXPECT_EQ(found.max, exact.max);
  for (Nanos Percentiles::*const each : {&Percentiles::p50, &Percentiles::p90, &Percentiles::p99}) {
    EXPECT_LE(std::abs(found.*each - exact.*each), within == 0 ? 0 : exact.*each / within);
  }
}

TEST(ReportBuilder, SaysWhatTheRecordsSay) {
  for (const uint32_t count : {2'000U, 72'000U}) {
    FollowedSimulation simulation(reported(), std::make_unique<GeneratedRequests>(small_requests(count)));
    const Slo slo{.ttft = 20'000'000};
    const ReportBuilder builder(simulation, slo);
    simulation.run();
    const Nanos within = count > TimeSummary::kMostExact ? 1000 : 0;
    ASSERT_EQ(simulation.totals().finished > TimeSummary::kMostExact, within > 0);
    std::vector<Nanos> queue;
    std::vector<Nanos> ttft;
    std::vector<GroupOutcome> tenants(3);
    std::vector<std::vector<Nanos>> of_tenants(3);
    for (const KeptRequest& record : simulation.records()) {
      GroupOutcome& tenant = tenants[record.tenant];
      ++tenant.requests;
      tenant.refused += record.refused ? 1 : 0;
      if (record.finished < 0) continue;
      ++tenant.finished;
      tenant.good += slo.met_by(record.ttft(), record.tpot(1), record.e2e()) ? 1 : 0;
      queue.push_back(record.admitted - record.arrival);
      ttft.push_back(record.ttft());
      of_tenants[record.tenant].push_back(record.e2e());
    }
    expect_like(builder.report().queue, queue, within);
    expect_like(builder.report().ttft, ttft, within);
    uint64_t good = 0;
    ASSERT_EQ(builder.by_tenant().size(), 3U);
    for (size_t i = 0; i < 3; ++i) {
      const GroupOutcome of = builder.by_tenant()[i];
      EXPECT_EQ(of.of, static_cast<int64_t>(i));
      EXPECT_EQ(of.requests, tenants[i].requests);
      EXPECT_EQ(of.finished, tenants[i].finished);
      EXPECT_EQ(of.refused, tenants[i].refused);
      EXPECT_GT(of.refused, 0U);
      EXPECT_EQ(of.good, tenants[i].good);
      expect_like(of.e2e, of_tenants[i], within);
      good += of.good;
    }
    EXPECT_EQ(builder.report().good, good);
    EXPECT_GT(good, 0U);
    EXPECT_EQ(builder.by_priority().size(), 2U);
  }
}

TEST(ReportBuilder, JudgesOnlyWhatHadEndedWhenItWasBrokenOff) {
  SimulationConfig config = reported();
  config.scheduler.max_model_len = 44;  // none is refused
  Simulation simulation(config, std::make_unique<GeneratedRequests>(small_requests(2'000)));
  const ReportBuilder builder(simulation, {.ttft = Nanos{1} << 50});
  const KeptRequests kept(simulation);
  while (simulation.totals().finished < 300) ASSERT_TRUE(simulation.step());
  simulation.break_off();
  const SimulationReport report = builder.report();
  EXPECT_EQ(report.requests, 2'000U);
  EXPECT_EQ(report.good, report.ended());
  EXPECT_EQ(report.unfinished(), 2'000 - report.ended());
  EXPECT_TRUE(builder.slo().attained(report.good, report.ended()));
  boost::json::object root = to_json(report, config, builder.slo());
  EXPECT_TRUE(root.at("interrupted").as_bool());
  EXPECT_EQ(root.at("unfinished").to_number<uint64_t>(), report.unfinished());
  // Records are of requests that have arrived.
  add_requests(root, builder, kept);
  const boost::json::array& records = root.at("records").as_array();
  EXPECT_GE(records.size(), report.ended());
  EXPECT_LT(records.size(), 500U);
  for (const boost::json::value& each : records) EXPECT_GE(each.as_array().front().as_int64(), 0);

  Simulation whole(config, std::make_unique<GeneratedRequests>(small_requests(200)));
  const ReportBuilder all(whole);
  whole.run();
  EXPECT_FALSE(to_json(all.report(), config, {}).at("interrupted").as_bool());
}

}  // namespace
}  // namespace quire::sim
