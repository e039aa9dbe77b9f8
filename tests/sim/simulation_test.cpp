#include "sim/simulation.h"

#include <filesystem>
#include <numeric>
#include <unistd.h>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "sim/replay.h"
#include "sim/report.h"
#include "sim/trace.h"
#include "tests/sim/followed_simulation.h"
#include "tests/support/data.h"
#include "tests/support/units.h"

namespace quire::sim {
namespace {

using test::kMillisecond;

SimulationConfig small_pool() {
  SimulationConfig config;
  config.scheduler.num_blocks = 96;
  config.scheduler.max_num_seqs = 16;
  config.scheduler.max_num_batched_tokens = 128;
  config.scheduler.max_model_len = 96 * 16;
  config.scheduler.max_waiting = 10'000;
  return config;
}

WorkloadConfig busy() {
  WorkloadConfig config;
  config.num_requests = 200;
  config.rate_thousandths = 12'000;
  config.burst = 8;
  config.burst_every = 2'000 * kMillisecond;
  config.prompt = Lengths::parse("lognormal:70:0.7:400", "");
  config.output = Lengths::parse("lognormal:60:0.8:300", "");
  config.prefix_length = 64;
  config.num_prefixes = 3;
  return config;
}

SimulationReport simulate(const SimulationConfig& config, const Workload& workload) {
  FollowedSimulation simulation(config, workload);
  simulation.run();
  return simulation.report();
}

TEST(Percentiles, AreNearestRank) {
  EXPECT_EQ(percentiles({}).p99, 0);
  const Percentiles one = percentiles({7});
  EXPECT_EQ(one.p50, 7);
  EXPECT_EQ(one.p99, 7);
  EXPECT_EQ(one.mean, 7);
  std::vector<Nanos> hundred(100);
  std::iota(hundred.rbegin(), hundred.rend(), 1);
  const Percentiles of_hundred = percentiles(hundred);
  EXPECT_EQ(of_hundred.p50, 50);
  EXPECT_EQ(of_hundred.p90, 90);
  EXPECT_EQ(of_hundred.p99, 99);
  EXPECT_EQ(of_hundred.max, 100);
  EXPECT_EQ(of_hundred.mean, 50);
  EXPECT_EQ(percentiles({1, 2, 3}).p50, 2);
  EXPECT_EQ(percentiles(std::vector<Nanos>(3, INT64_MAX)).mean, INT64_MAX);
}

TEST(Simulation, StepsInFlightChangeWhenThingsAreDecidedAndNotWhatIsSaid) {
  const Workload workload = make_workload(busy());
  std::vector<SimulationReport> reports;
  for (uint32_t depth = 1; depth <= backend::kMostOpenSteps; ++depth) {
    SimulationConfig config = small_pool();
    config.depth = depth;
    reports.push_back(simulate(config, workload));
    EXPECT_EQ(reports.back().digest, simulate(config, workload).digest);
    EXPECT_EQ(reports.back().totals.finished, reports.front().totals.finished);
    EXPECT_EQ(reports.back().output_tokens, reports.front().output_tokens);
  }
  EXPECT_NE(reports[0].decision_digest, reports[1].decision_digest);
  EXPECT_NE(reports[1].decision_digest, reports[2].decision_digest);
  SimulationConfig config = small_pool();
  config.depth = backend::kMostOpenSteps + 1;
  EXPECT_THROW(simulate(config, workload), Error);
}

TEST(Simulation, TheDeviceIsNeverIdleBetweenStepsInFlight) {
  Workload workload;
  workload.requests = {{.arrival = 0, .prompt_length = 30, .output_length = 10}};
  SimulationConfig config = small_pool();
  config.depth = 2;
  FollowedSimulation simulation(config, workload);
  simulation.run();
  const Nanos expected = config.cost.linear()->duration(30, 0) + 9 * config.cost.linear()->duration(0, 1);
  EXPECT_EQ(simulation.records()[0].finished, expected);
  EXPECT_EQ(simulation.totals().steps, 10U);  // none for a token beyond the last
}

TEST(Simulation, TimesOfASingleRequestAreThoseOfTheCostModel) {
  Workload workload;
  workload.requests = {{.arrival = 5 * kMillisecond, .prompt_length = 300, .output_length = 4}};
  SimulationConfig config = small_pool();
  const backend::sim::LinearCost cost = *config.cost.linear();
  FollowedSimulation simulation(config, workload);
  simulation.run();
  const RequestRecord& record = simulation.records()[0];
  EXPECT_EQ(record.arrival, 5 * kMillisecond);
  EXPECT_EQ(record.admitted, 5 * kMillisecond);
  // Three chunks: 128, 128 and 44 tokens.
  const Nanos prefill = 2 * cost.duration(128, 0) + cost.duration(44, 0);
  EXPECT_EQ(record.first_token, 5 * kMillisecond + prefill);
  EXPECT_EQ(record.finished, record.first_token + 3 * cost.duration(0, 1));
  EXPECT_EQ(record.output_tokens, 4U);
  EXPECT_EQ(simulation.totals().steps, 6U);
  const SimulationReport report = simulation.report();
  EXPECT_EQ(report.ttft.p50, prefill);
  EXPECT_EQ(report.tpot.max, cost.duration(0, 1));
  EXPECT_EQ(report.queue.max, 0);
  EXPECT_EQ(report.elapsed, record.finished);
  EXPECT_EQ(simulation.totals().busy, record.finished - 5 * kMillisecond);
}

TEST(Simulation, SameInputsSameDigestOnEveryMachine) {
  const Workload workload = make_workload(busy());
  const SimulationReport one = simulate(small_pool(), workload);
  const SimulationReport two = simulate(small_pool(), make_workload(busy()));
  EXPECT_EQ(one.digest, two.digest);
  EXPECT_EQ(one.elapsed, two.elapsed);
  // A change of what is decided changes these; write down the new ones when that is meant.
  EXPECT_EQ(one.digest, 17547533431430803271U);
  EXPECT_EQ(one.elapsed, 18'935'804'854);
}

TEST(Simulation, ChoicesShareTheirPrompt) {
  WorkloadConfig load = busy();
  Workload workload = make_workload(load);
  SimulationConfig config = small_pool();
  config.scheduler.num_blocks *= 4;
  config.scheduler.max_waiting = 100'000;
  const SimulationReport one = simulate(config, workload);
  workload.choices = 3;
  FollowedSimulation simulation(config, workload);
  simulation.run();
  const SimulationReport three = simulation.report();
  EXPECT_EQ(three.totals.finished, one.totals.finished);
  EXPECT_EQ(three.output_tokens, 3 * one.output_tokens);
  EXPECT_EQ(three.prompt_tokens, one.prompt_tokens);
  // What a fork computes of the prompt is its last token, unless it was preempted.
  EXPECT_LT(three.totals.prefill_tokens, 2 * one.totals.prefill_tokens);
  EXPECT_GT(three.last.total_copies, 0U);
  for (const RequestRecord& record : simulation.records()) {
    if (!record.refused) {
      EXPECT_EQ(record.output_tokens % 3, 0U);
    }
  }
}

TEST(Simulation, EveryInputIsInTheDigest) {
  const uint64_t digest = simulate(small_pool(), make_workload(busy())).digest;
  WorkloadConfig other = busy();
  other.seed = 1;
  EXPECT_NE(simulate(small_pool(), make_workload(other)).digest, digest);
  other = busy();
  other.vocab_size = 31'999;
  EXPECT_NE(simulate(small_pool(), make_workload(other)).digest, digest);
  SimulationConfig config = small_pool();
  ++config.cost.linear()->step;
  EXPECT_NE(simulate(config, make_workload(busy())).digest, digest);
  config = small_pool();
  ++config.scheduler.num_blocks;
  EXPECT_NE(simulate(config, make_workload(busy())).digest, digest);
}

TEST(Simulation, AllRequestsEndAndAllBlocksAreBack) {
  for (const bool caching : {true, false}) {
    for (uint64_t seed = 0; seed < 5; ++seed) {
      WorkloadConfig load = busy();
      load.seed = seed;
      const Workload workload = make_workload(load);
      SimulationConfig config = small_pool();
      config.scheduler.enable_prefix_caching = caching;
      FollowedSimulation simulation(config, workload);
      while (simulation.step()) {
        const std::string wrong = simulation.scheduler().check_invariants();
        ASSERT_EQ(wrong, "") << "seed " << seed << ", step " << simulation.stats().step;
      }
      EXPECT_FALSE(simulation.scheduler().has_work());
      EXPECT_EQ(simulation.stats().blocks_referenced, 0U);
      EXPECT_EQ(simulation.totals().finished, 200U);
      EXPECT_GT(simulation.stats().total_preemptions, 0U) << "the pool is not small enough to test anything";
      uint64_t preemptions = 0;
      for (size_t i = 0; i < 200; ++i) {
        const RequestRecord& record = simulation.records()[i];
        EXPECT_EQ(record.output_tokens, workload.requests[i].output_length);
        EXPECT_LE(record.arrival, record.admitted);
        EXPECT_LT(record.admitted, record.first_token);
        EXPECT_LE(record.first_token, record.finished);
        preemptions += record.preemptions;
      }
      EXPECT_EQ(preemptions, simulation.stats().total_preemptions);
      EXPECT_LE(simulation.totals().peak_blocks, 96U);
    }
  }
}

TEST(Simulation, DecodingTogetherIsCheaperThanAlone) {
  Workload together;
  Workload in_turn;
  for (int i = 0; i < 16; ++i) {
    together.requests.push_back({.arrival = 0, .prompt_length = 16, .output_length = 64});
    in_turn.requests.push_back(
        {.arrival = i * 10'000 * kMillisecond, .prompt_length = 16, .output_length = 64});
  }
  const SimulationReport batched = simulate(small_pool(), together);
  const SimulationReport alone = simulate(small_pool(), in_turn);
  EXPECT_EQ(batched.totals.decode_tokens, alone.totals.decode_tokens);
  EXPECT_LT(batched.totals.busy * 8, alone.totals.busy);
}

TEST(Simulation, ASharedPromptComesSoonerWithThePrefixCache) {
  WorkloadConfig load;
  load.num_requests = 64;
  load.rate_thousandths = 4000;
  load.prompt = Lengths::parse("16", "");
  load.output = Lengths::parse("16", "");
  load.prefix_length = 512;
  const Workload workload = make_workload(load);
  SimulationConfig config = small_pool();
  config.scheduler.num_blocks = 1024;
  config.scheduler.max_model_len = 2048;
  const SimulationReport with = simulate(config, workload);
  config.scheduler.enable_prefix_caching = false;
  const SimulationReport without = simulate(config, workload);
  EXPECT_LT(with.ttft.p50 * 2, without.ttft.p50);
  EXPECT_EQ(without.last.total_prefix_hit_tokens, 0U);
  // 63 of 64 find the 512 tokens.
  EXPECT_EQ(with.last.total_prefix_queried_tokens, 64U * 528);
  EXPECT_GE(with.last.total_prefix_hit_tokens, 60U * 512);
  EXPECT_EQ(with.totals.prefill_tokens, 64U * 528 - with.last.total_prefix_hit_tokens);
}

TEST(Simulation, SwappingTakesItsTimeAndSavesComputing) {
  const Workload workload = make_workload(busy());
  SimulationConfig config = small_pool();
  config.scheduler.enable_prefix_caching = false;
  const SimulationReport recompute = simulate(config, workload);
  config.scheduler.preemption = control::PreemptionKind::kSwap;
  config.scheduler.num_host_blocks = 1024;
  config.cost.linear()->swap_block = 0;
  const SimulationReport free_swap = simulate(config, workload);
  EXPECT_GT(free_swap.last.total_preemptions, 0U);
  EXPECT_GT(free_swap.totals.moved_blocks, 0U);
  EXPECT_EQ(free_swap.totals.prefill_tokens, free_swap.prompt_tokens);  // nothing is computed twice
  EXPECT_GT(recompute.totals.prefill_tokens, recompute.prompt_tokens);
  EXPECT_EQ(recompute.output_tokens, free_swap.output_tokens);
  config.cost.linear()->swap_block = 50 * kMillisecond;
  const SimulationReport slow_swap = simulate(config, workload);
  EXPECT_GE(slow_swap.totals.busy, slow_swap.totals.moved_blocks * 50 * kMillisecond);
  EXPECT_GT(slow_swap.elapsed, free_swap.elapsed);
  // Told what things cost, it computes again rather than wait for such a device.
  config.scheduler.preemption = control::PreemptionKind::kAuto;
  config.scheduler.costs = config.cost.hints(config.scheduler.max_num_seqs);
  EXPECT_EQ(simulate(config, workload).totals.moved_blocks, 0U);
}

TEST(Simulation, EagerAdmissionThrashes) {
  WorkloadConfig load = busy();
  load.rate_thousandths = 0;
  load.burst = 0;
  load.prefix_length = 0;
  const Workload workload = make_workload(load);
  SimulationConfig config = small_pool();
  config.scheduler.watermark_bp = 0;
  config.scheduler.enable_prefix_caching = false;
  const SimulationReport guarded = simulate(config, workload);
  config.scheduler.admit_eagerly = true;
  config.scheduler.admit_while_preempting = true;
  FollowedSimulation eager(config, workload);
  while (eager.step()) ASSERT_EQ(eager.scheduler().check_invariants(), "") << eager.stats().step;
  EXPECT_EQ(eager.totals().finished, 200U);
  EXPECT_GT(eager.stats().total_preemptions, 2 * guarded.last.total_preemptions);
  EXPECT_GT(eager.totals().prefill_tokens, guarded.totals.prefill_tokens);
}

TEST(Simulation, PoliciesGoByWhatTheWorkloadSays) {
  WorkloadConfig load = busy();
  load.rate_thousandths = 10'000;  // under far more than can be done, slo is no better than fcfs
  Workload workload = make_workload(load);
  assign_service(
      workload,
      {.num_tenants = 3, .num_priorities = 4, .ttft_deadline_ms = Lengths::parse("uniform:500:8000", "")});
  workload.lengths_known = true;
  const auto run = [&](control::SchedulingKind kind) {
    SimulationConfig config = small_pool();
    config.scheduler.scheduling = kind;
    config.scheduler.costs = config.cost.hints(config.scheduler.max_num_seqs);
    return simulate(config, workload);
  };
  const SimulationReport fcfs = run(control::SchedulingKind::kFcfs);
  for (const control::SchedulingKind kind :
       {control::SchedulingKind::kSrpt, control::SchedulingKind::kSlo, control::SchedulingKind::kPriority,
        control::SchedulingKind::kFair, control::SchedulingKind::kLpm}) {
    const SimulationReport other = run(kind);
    EXPECT_EQ(other.totals.finished, 200U);
    EXPECT_NE(other.digest, fcfs.digest) << control::kSchedulingNames[static_cast<size_t>(kind)];
    EXPECT_NE(other.decision_digest, fcfs.decision_digest);
  }
  EXPECT_LT(run(control::SchedulingKind::kSrpt).e2e.mean, fcfs.e2e.mean);
  EXPECT_GT(run(control::SchedulingKind::kSlo).in_time, fcfs.in_time);
  EXPECT_LT(fcfs.in_time, 200U);
}

TEST(Simulation, ItsRecordReplaysToTheSameDecisions) {
  const auto path = std::filesystem::temp_directory_path() / fmt::format("quire_simulation_{}.log", getpid());
  const Workload workload = make_workload(busy());
  SimulationConfig config = small_pool();
  config.scheduler.preemption = control::PreemptionKind::kSwap;
  config.scheduler.num_host_blocks = 64;
  uint64_t digest = 0;
  {
    record::RunWriter record(path);
    FollowedSimulation simulation(config, workload, &record);
    simulation.run();
    EXPECT_FALSE(simulation.step());  // the record ends once
    digest = simulation.scheduler().digest();
    EXPECT_EQ(simulation.digest(), simulate(config, workload).digest);
  }
  const record::Replay again = replay(path);
  EXPECT_TRUE(again.same());
  EXPECT_EQ(again.digest, digest);
  std::filesystem::remove(path);
}

TEST(Simulation, WhatCanNeverRunIsRefusedAndTheRestGoesOn) {
  Workload workload;
  workload.requests = {{.prompt_length = 1 << 30, .output_length = 1},
                       {.prompt_length = 10, .output_length = 1 << 30},
                       {.prompt_length = 10, .output_length = 10}};
  FollowedSimulation simulation(small_pool(), workload);
  simulation.run();
  EXPECT_EQ(simulation.totals().refused, 2U);
  EXPECT_EQ(simulation.totals().finished, 1U);
  EXPECT_TRUE(simulation.records()[0].refused);
  EXPECT_FALSE(simulation.records()[2].refused);

  SimulationConfig full = small_pool();
  full.scheduler.max_waiting = 1;
  full.scheduler.max_num_seqs = 1;
  EXPECT_EQ(simulate(full, workload).totals.finished, 1U);
  workload.requests.assign(5, {.prompt_length = 10, .output_length = 10});
  EXPECT_EQ(simulate(full, workload).totals.refused, 3U);
}

/// What ends with a step has run in it.
TEST(Simulation, TheOnlyStepOfARequestCounts) {
  Workload workload;
  workload.requests.assign(5, {.prompt_length = 40, .output_length = 1});
  SimulationConfig config = small_pool();
  config.scheduler.max_num_seqs = 1;
  const auto report = simulate(config, workload);
  EXPECT_EQ(report.totals.peak_running, 1U);
  EXPECT_EQ(report.totals.peak_blocks, (40 + config.scheduler.block_size - 1) / config.scheduler.block_size);
  EXPECT_GT(report.totals.block_micros, 0U);
}

/// The last token of some is on its way when they are preempted, so they are never admitted again.
TEST(Simulation, PreemptionsOfRequestsAddUpWithStepsInFlight) {
  WorkloadConfig load = busy();
  const Workload workload = make_workload(load);
  SimulationConfig config = small_pool();
  config.depth = 3;
  FollowedSimulation simulation(config, workload);
  simulation.run();
  uint64_t preemptions = 0;
  for (const RequestRecord& record : simulation.records()) preemptions += record.preemptions;
  EXPECT_GT(preemptions, 0U);
  EXPECT_EQ(preemptions, simulation.stats().total_preemptions);
}

/// Several answers to a prompt share it; that is no hit.
TEST(Simulation, ForksAreNoLookups) {
  WorkloadConfig load = busy();
  Workload workload = make_workload(load);
  workload.choices = 4;
  FollowedSimulation simulation(small_pool(), workload);
  simulation.run();
  uint64_t prompts = 0;
  uint64_t cached = 0;
  for (const RequestRecord& record : simulation.records()) {
    prompts += record.prompt_tokens;
    cached += record.cached_tokens;
  }
  EXPECT_EQ(simulation.stats().total_prefix_queried_tokens, prompts);
  EXPECT_EQ(simulation.stats().total_prefix_hit_tokens, cached);
}

TEST(Simulation, WhatIsForAFreeSlotDoesNotWait) {
  SimulationConfig config = small_pool();
  config.scheduler.max_waiting = 0;
  config.scheduler.max_num_seqs = 3;
  Workload workload;
  workload.requests.assign(5, {.prompt_length = 10, .output_length = 10});
  EXPECT_EQ(simulate(config, workload).totals.finished, 3U);
  workload.choices = 2;  // one request has two slots, and for another there is one
  EXPECT_EQ(simulate(config, workload).totals.finished, 1U);
}

TEST(Simulation, RequestsAreReceivedOneAfterTheOther) {
  SimulationConfig config = small_pool();
  config.accept = kMillisecond;
  Workload workload;
  workload.requests.assign(3, {.arrival = 5 * kMillisecond, .prompt_length = 10, .output_length = 1});
  workload.requests.push_back({.prompt_length = 10, .output_length = 1, .follows = 0});
  FollowedSimulation simulation(config, workload);
  simulation.run();
  const Nanos step = config.cost.duration({.chunks = 1, .prefill_tokens = 10, .logit_rows = 1});
  const Nanos both = config.cost.duration({.chunks = 2, .prefill_tokens = 20, .logit_rows = 2});
  const auto records = simulation.records();
  EXPECT_EQ(records[0].arrival, 5 * kMillisecond);
  EXPECT_EQ(records[0].admitted, 6 * kMillisecond);
  EXPECT_EQ(records[0].finished, 6 * kMillisecond + step) << "alone: the others are not received yet";
  EXPECT_EQ(records[1].admitted, records[0].finished);
  EXPECT_EQ(records[2].finished, records[0].finished + both);
  EXPECT_EQ(records[3].arrival, records[0].finished);
  EXPECT_EQ(records[3].admitted, records[2].finished) << "the step that began when it was sent is over";
}

TEST(Simulation, TheWayToTheServerCountsForEachRequest) {
  SimulationConfig config = small_pool();
  config.latency = kMillisecond;
  Workload workload;
  workload.requests.assign(2, {.arrival = 5 * kMillisecond, .prompt_length = 10, .output_length = 1});
  workload.requests.push_back({.prompt_length = 10, .output_length = 1, .follows = 0});
  FollowedSimulation simulation(config, workload);
  simulation.run();
  const Nanos both = config.cost.duration({.chunks = 2, .prefill_tokens = 20, .logit_rows = 2});
  const auto records = simulation.records();
  EXPECT_EQ(records[0].arrival, 5 * kMillisecond);
  EXPECT_EQ(records[1].admitted, 6 * kMillisecond) << "both are under way at the same time";
  EXPECT_EQ(records[1].finished, 6 * kMillisecond + both);
  EXPECT_EQ(records[2].arrival, records[0].finished);
  EXPECT_EQ(records[2].admitted, records[0].finished + kMillisecond);
}

TEST(Simulation, WithoutWorkNoTimePasses) {
  const Workload workload;
  FollowedSimulation simulation(small_pool(), workload);
  EXPECT_FALSE(simulation.step());
  EXPECT_EQ(simulation.report().elapsed, 0);
}

TEST(Simulation, PrefixHitsOfTheMooncakeTraceComeNearWhatAnEndlessCacheWouldGive) {
  QUIRE_NEEDS_DATA("traces-mooncake/conversation_trace.jsonl");
  const Workload workload =
      read_trace(test::data_dir() / "traces-mooncake/conversation_trace.jsonl", {.max_requests = 1000});
  SimulationConfig config = small_pool();
  config.scheduler.block_size = 512;
  config.scheduler.num_blocks = 100'000;
  config.scheduler.max_model_len = 200'000;
  config.scheduler.max_num_seqs = 256;
  config.scheduler.max_num_batched_tokens = 65'536;
  config.cost.linear()->prefill_tokens_per_ms = 1000;
  const SimulationReport report = simulate(config, workload);
  EXPECT_EQ(report.totals.finished, 1000U);
  // Hits by ids alone, in order of arrival: whole blocks that leave a token to compute.
  std::vector<bool> known;
  uint64_t expected = 0;
  for (const SimRequest& request : workload.requests) {
    bool hit = true;
    for (size_t i = 0; i < request.pieces.size(); ++i) {
      if (request.pieces[i] >= known.size()) known.resize(request.pieces[i] + 1);
      hit = hit && known[request.pieces[i]] && (i + 1) * 512 < request.prompt_length;
      expected += hit ? 512 : 0;
      if ((i + 1) * 512 <= request.prompt_length) known[request.pieces[i]] = true;
    }
  }
  EXPECT_LE(report.last.total_prefix_hit_tokens, expected);
  EXPECT_GT(report.last.total_prefix_hit_tokens, expected * 95 / 100);
}

}  // namespace
}  // namespace quire::sim
