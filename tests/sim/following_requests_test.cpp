// Requests that follow others: users of a closed loop and the turns of conversations.
#include <gtest/gtest.h>

#include "sim/report.h"
#include "sim/simulation.h"
#include "tests/sim/followed_simulation.h"

namespace quire::sim {
namespace {

SimulationConfig machine() {
  SimulationConfig config;
  config.scheduler.num_blocks = 4096;
  config.scheduler.max_num_seqs = 16;
  config.scheduler.max_num_batched_tokens = 256;
  config.scheduler.max_model_len = 4096 * 16;
  config.scheduler.max_waiting = 10'000;
  return config;
}

WorkloadConfig users(uint32_t count) {
  WorkloadConfig config;
  config.num_requests = 2000;
  config.users = count;
  config.think_ms = Lengths::parse("exponential:4000", "");
  config.prompt = Lengths::parse("lognormal:100:0.8:800", "");
  config.output = Lengths::parse("uniform:10:60", "");
  return config;
}

TEST(ClosedLoop, NoUserHasTwoRequestsAndEachThinksBetweenThem) {
  const Workload workload = make_workload(users(12));
  FollowedSimulation simulation(machine(), workload);
  simulation.run();
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const RequestRecord& record = simulation.records()[i];
    ASSERT_GE(record.finished, 0);
    const Nanos before = i < 12 ? 0 : simulation.records()[i - 12].finished;
    EXPECT_EQ(record.arrival, before + workload.requests[i].think);
  }
  EXPECT_LE(simulation.totals().peak_running + simulation.totals().peak_waiting, 24U);
}

TEST(ClosedLoop, LittlesLawHolds) {
  for (const uint32_t count : {1U, 8U, 64U}) {
    WorkloadConfig config = users(count);
    config.think_ms = Lengths::parse("uniform:3000:5000", "");
    const Workload workload = make_workload(config);
    FollowedSimulation simulation(machine(), workload);
    simulation.run();
    const SimulationReport report = simulation.report();
    double think = 0;
    for (const SimRequest& request : workload.requests) think += static_cast<double>(request.think) / 2000;
    const double rate = 2000 / static_cast<double>(report.elapsed);
    // Fewer at the end, when users have no further request.
    EXPECT_NEAR(rate * (static_cast<double>(report.e2e.mean) + think), count, 0.1 * count);
  }
}

WorkloadConfig conversations() {
  WorkloadConfig config = users(5);
  config.num_requests = 300;
  config.turns = Lengths::parse("uniform:1:6", "");
  config.turn_prompt = Lengths::parse("uniform:5:80", "");
  return config;
}

TEST(Conversations, TheHistoryIsFoundInThePrefixCache) {
  const Workload workload = make_workload(conversations());
  FollowedSimulation simulation(machine(), workload);
  simulation.run();
  int later = 0;
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const SimRequest& request = workload.requests[i];
    const uint32_t cached = simulation.records()[i].cached_tokens;
    if (!request.continues) {
      EXPECT_EQ(cached, 0U);
      continue;
    }
    // All of it but the last token, which was sampled and never computed, in whole blocks.
    const SimRequest& before = workload.requests[request.follows];
    EXPECT_EQ(cached, (before.prompt_length + before.output_length - 1) / 16 * 16) << i;
    ++later;
  }
  EXPECT_GT(later, 150);
  SimulationConfig without = machine();
  without.scheduler.enable_prefix_caching = false;
  FollowedSimulation slower(without, workload);
  slower.run();
  EXPECT_GT(slower.totals().prefill_tokens, 2 * simulation.totals().prefill_tokens);
}

TEST(Conversations, SeveralAnswersGoOnWithTheFirst) {
  Workload workload = make_workload(conversations());
  workload.choices = 3;
  FollowedSimulation simulation(machine(), workload);
  simulation.run();
  EXPECT_EQ(simulation.totals().finished, workload.requests.size());
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    if (!workload.requests[i].continues) continue;
    const SimRequest& before = workload.requests[i - 1];
    EXPECT_EQ(simulation.records()[i].cached_tokens,
              (before.prompt_length + before.output_length - 1) / 16 * 16);
  }
}

TEST(Conversations, SameInputsSameDigest) {
  const Workload workload = make_workload(conversations());
  FollowedSimulation two(machine(), workload);
  two.run();
  FollowedSimulation three(machine(), workload);
  three.run();
  EXPECT_EQ(two.digest(), three.digest());
  // A change of what is decided changes it; write down the new one when that is meant.
  EXPECT_EQ(two.digest(), 13657598691651268607U);
}

TEST(Refusals, EachHasItsReason) {
  Workload workload;
  workload.requests = {
      {.prompt_length = 90, .output_length = 10},
      {.prompt_length = 150, .output_length = 10, .follows = 0, .continues = true},
      {.prompt_length = 300, .output_length = 10, .follows = 1, .continues = true, .line = 7},  // too long
      {.prompt_length = 330, .output_length = 10, .follows = 2, .continues = true},             // not sent
      {.prompt_length = 10, .output_length = 10, .follows = 3}};
  SimulationConfig config = machine();
  config.scheduler.num_blocks = 16;
  config.scheduler.max_model_len = 256;
  FollowedSimulation pool(config, workload);
  pool.run();
  EXPECT_EQ(pool.totals().finished, 3U);
  EXPECT_EQ(pool.totals().refused, 2U);
  EXPECT_EQ(pool.records()[2].refused, Refusal::kTooLongForPool);
  EXPECT_EQ(pool.records()[3].refused, Refusal::kConversation);
  EXPECT_EQ(pool.records()[3].arrival, -1);
  EXPECT_EQ(
      refusal_texts(pool.totals()),
      (std::vector<std::string>{"1 too long for the pool, the first in line 7 of the trace with 310 tokens",
                                "1 after an earlier turn of their conversation, the first number 4 with 340 "
                                "tokens"}));
  config.scheduler.max_model_len = 255;
  FollowedSimulation model(config, workload);
  model.run();
  EXPECT_EQ(model.records()[2].refused, Refusal::kTooLongForModel);
  config = machine();
  config.scheduler.num_blocks = 16;  // fewer than the model could have
  FollowedSimulation small(config, workload);
  small.run();
  EXPECT_EQ(small.records()[2].refused, Refusal::kTooLongForPool);
  config = machine();
  config.scheduler.max_waiting = 0;
  config.scheduler.max_num_seqs = 1;
  workload.requests.assign(3, {.prompt_length = 10, .output_length = 10});
  FollowedSimulation full(config, workload);
  full.run();
  EXPECT_EQ(full.totals().refused_by[static_cast<size_t>(Refusal::kQueueFull)], 2U);
  EXPECT_EQ(full.totals().first_refused[static_cast<size_t>(Refusal::kQueueFull)].number, 1U);
}

}  // namespace
}  // namespace quire::sim
