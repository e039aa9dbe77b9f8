#include "sim/timeline.h"

#include <gtest/gtest.h>

#include "sim/simulation.h"
#include "tests/support/units.h"

namespace quire::sim {
namespace {

using test::kMillisecond;

TEST(Timeline, SpreadsASpanOverItsBuckets) {
  Timeline timeline;
  timeline.add({.from = kMillisecond / 2,
                .to = 2 * kMillisecond,
                .running = 4,
                .waiting = 2,
                .held = 0.5,
                .preemptions = 3});
  ASSERT_EQ(timeline.length(), kMillisecond);
  ASSERT_EQ(timeline.buckets().size(), 2U);
  EXPECT_EQ(timeline.buckets()[0].covered, kMillisecond / 2);
  EXPECT_EQ(timeline.buckets()[1].covered, kMillisecond);
  for (const Timeline::Bucket& bucket : timeline.buckets()) {
    EXPECT_DOUBLE_EQ(bucket.mean(&Timeline::Bucket::running), 4);
    EXPECT_DOUBLE_EQ(bucket.mean(&Timeline::Bucket::held), 0.5);
    EXPECT_EQ(bucket.most_waiting, 2);
  }
  EXPECT_EQ(timeline.buckets()[0].preemptions, 0U);
  EXPECT_EQ(timeline.buckets()[1].preemptions, 3U);
}

TEST(Timeline, StaysSmallAndLosesNothing) {
  Timeline timeline;
  constexpr Nanos kStep = 7 * kMillisecond / 3;
  constexpr int kSteps = 20'000;
  for (int i = 0; i < kSteps; ++i) {
    timeline.add({.from = i * kStep,
                  .to = (i + 1) * kStep,
                  .running = i % 2 == 0 ? 2.0 : 6.0,
                  .waiting = i == 777 ? 50.0 : 1.0,
                  .queried_tokens = 10,
                  .hit_tokens = 4,
                  .preemptions = 1,
                  .output_tokens = 2});
    ASSERT_LE(timeline.buckets().size(), Timeline::kMostBuckets);
  }
  EXPECT_GT(timeline.buckets().size(), Timeline::kMostBuckets / 2);
  Nanos covered = 0;
  double running = 0;
  double most_waiting = 0;
  uint64_t queried = 0;
  uint64_t hit = 0;
  uint64_t preempted = 0;
  uint64_t output = 0;
  for (const Timeline::Bucket& bucket : timeline.buckets()) {
    covered += bucket.covered;
    running += bucket.running;
    most_waiting = std::max(most_waiting, bucket.most_waiting);
    queried += bucket.queried_tokens;
    hit += bucket.hit_tokens;
    preempted += bucket.preemptions;
    output += bucket.output_tokens;
  }
  EXPECT_EQ(covered, kSteps * kStep);
  EXPECT_NEAR(running / static_cast<double>(covered), 4, 1e-9);
  EXPECT_EQ(most_waiting, 50);
  EXPECT_EQ(queried, 10U * kSteps);
  EXPECT_EQ(hit, 4U * kSteps);
  EXPECT_EQ(preempted, uint64_t{kSteps});
  EXPECT_EQ(output, 2U * kSteps);
}

TEST(Timeline, TakesASpanFarAway) {
  Timeline timeline;
  timeline.add({.from = 0, .to = kMillisecond, .running = 1});
  timeline.add({.from = Nanos{1} << 60, .to = (Nanos{1} << 60) + kMillisecond, .output_tokens = 5});
  EXPECT_LE(timeline.buckets().size(), Timeline::kMostBuckets);
  EXPECT_EQ(timeline.buckets().back().output_tokens, 5U);
}

TEST(SimulationTimeline, HasTheTotalsOfTheSimulation) {
  SimulationConfig config;
  config.scheduler.num_blocks = 60;
  config.scheduler.max_num_seqs = 16;
  config.scheduler.max_num_batched_tokens = 128;
  config.scheduler.max_model_len = 60 * 16;
  config.scheduler.max_waiting = 10'000;
  for (const uint32_t depth : {1U, 3U}) {
    config.depth = depth;
    WorkloadConfig load;
    load.num_requests = 100;
    load.rate_thousandths = 9'000;
    load.prompt = Lengths::parse("lognormal:70:0.7:400", "");
    load.output = Lengths::parse("lognormal:60:0.8:300", "");
    load.prefix_length = 64;
    const Workload workload = make_workload(load);
    Simulation simulation(config, workload);
    SimulationTimeline timeline;
    while (simulation.step()) timeline.take(simulation);
    uint64_t output = 0;
    uint64_t hit = 0;
    uint64_t preempted = 0;
    Nanos covered = 0;
    for (const Timeline::Bucket& bucket : timeline.timeline().buckets()) {
      output += bucket.output_tokens;
      hit += bucket.hit_tokens;
      preempted += bucket.preemptions;
      covered += bucket.covered;
      EXPECT_LE(bucket.mean(&Timeline::Bucket::held) + bucket.mean(&Timeline::Bucket::cached), 1 + 1e-9);
    }
    EXPECT_EQ(covered, simulation.now());
    EXPECT_EQ(output, simulation.totals().output_tokens);
    EXPECT_GT(output, 0U);
    EXPECT_EQ(hit, simulation.stats().total_prefix_hit_tokens);
    EXPECT_EQ(preempted, simulation.stats().total_preemptions);
    EXPECT_GT(preempted, 0U);
  }
}

}  // namespace
}  // namespace quire::sim
