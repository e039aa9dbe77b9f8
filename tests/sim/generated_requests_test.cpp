// A simulation of requests that are drawn when they are due is the same as one of a list of them.
#include "sim/generated_requests.h"

#include <map>

#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/sim/followed_simulation.h"

namespace quire::sim {
namespace {

Lengths lengths_of(std::string_view text) { return Lengths::parse(text, "--len"); }

SimulationConfig simulated() {
  SimulationConfig config;
  config.scheduler.num_blocks = 200;
  config.scheduler.max_num_seqs = 16;
  config.scheduler.max_num_batched_tokens = 256;
  config.scheduler.max_model_len = 1000;
  config.scheduler.max_waiting = 20;
  return config;
}

WorkloadConfig singles() {
  WorkloadConfig config;
  config.num_requests = 600;
  config.rate_thousandths = 6'000;
  config.burst = 40;
  config.burst_every = 10'000'000'000;
  config.prompt = lengths_of("lognormal:70:0.7:400");
  config.output = lengths_of("uniform:1:60");
  config.prefix_length = 48;
  config.num_prefixes = 5;
  config.service = ServiceConfig{.seed = 4, .num_tenants = 9, .num_priorities = 3};
  config.service->ttft_deadline_ms = lengths_of("uniform:100:900");
  return config;
}

/// Some are so long that they are refused, with the rest of their talks.
WorkloadConfig talks() {
  WorkloadConfig config = singles();
  config.turns = lengths_of("uniform:1:9");
  config.turn_prompt = lengths_of("uniform:5:150");
  config.think_ms = lengths_of("exponential:300");
  return config;
}

WorkloadConfig of_users(WorkloadConfig config, uint32_t users) {
  config.users = users;
  config.think_ms = lengths_of("exponential:2000");
  return config;
}

std::vector<WorkloadConfig> all_kinds() {
  WorkloadConfig at_once = singles();
  at_once.rate_thousandths = at_once.burst = 0;
  WorkloadConfig choices = talks();
  choices.choices = 3;
  choices.lengths_known = true;
  choices.rate_thousandths = 500;
  WorkloadConfig fixed_turns = of_users(talks(), 30);
  fixed_turns.turns = lengths_of("7");
  return {singles(),
          talks(),
          of_users(singles(), 13),
          of_users(talks(), 13),
          of_users(talks(), 2'000),  // of whom not all come to send anything
          at_once,
          choices,
          fixed_turns};
}

TEST(GeneratedRequests, RunLikeAListOfThem) {
  size_t kind = 0;
  for (const WorkloadConfig& config : all_kinds()) {
    SCOPED_TRACE(kind++);
    const Workload workload = make_workload(config);
    FollowedSimulation list(simulated(), workload);
    list.run();
    FollowedSimulation drawn(simulated(), std::make_unique<GeneratedRequests>(config));
    drawn.run();
    EXPECT_EQ(drawn.digest(), list.digest());
    EXPECT_EQ(drawn.scheduler().digest(), list.scheduler().digest());
    EXPECT_GE(drawn.totals().finished, 20U);
    EXPECT_EQ(drawn.totals().finished + drawn.totals().refused, config.num_requests);
    ASSERT_EQ(drawn.records().size(), config.num_requests);
    for (size_t i = 0; i < config.num_requests; ++i) {
      const KeptRequest& one = drawn.records()[i];
      const KeptRequest& other = list.records()[i];
      EXPECT_EQ(one.arrival, other.arrival);
      EXPECT_EQ(one.admitted, other.admitted);
      EXPECT_EQ(one.finished, other.finished);
      EXPECT_EQ(one.output_tokens, other.output_tokens);
      EXPECT_EQ(one.preemptions, other.preemptions);
      EXPECT_EQ(one.refused, other.refused);
      EXPECT_EQ(one.prompt_tokens, workload.requests[i].prompt_length);
      EXPECT_EQ(one.tenant, workload.requests[i].tenant);
      EXPECT_EQ(one.priority, workload.requests[i].priority);
    }
  }
}

/// The k-th conversation of users is the one that a list has, whatever is asked for before.
TEST(GeneratedRequests, ConversationsBeginWhereAllBeforeThemEnd) {
  for (const char* turns : {"uniform:1:9", "exponential:5:40", "3"}) {
    constexpr uint32_t kRequests = 5'000;
    ConversationStarts in_order(7, lengths_of(turns), kRequests);
    std::vector<uint32_t> starts;
    for (uint32_t start = 0; start < kRequests; start += in_order.turns_from(start)) {
      EXPECT_EQ(in_order.of(starts.size()), start);
      starts.push_back(start);
    }
    EXPECT_EQ(in_order.of(starts.size()), kRequests);
    EXPECT_EQ(in_order.of(UINT64_MAX / 16), kRequests);
    ConversationStarts at_random(7, lengths_of(turns), kRequests);
    SplitMix64 random(1);
    for (int i = 0; i < 1'000; ++i) {
      const uint64_t k = random.below(starts.size());
      EXPECT_EQ(at_random.of(k), starts[k]) << k;
    }
  }
}

TEST(GeneratedRequests, OnlyThoseThatWaitOrRunAreKept) {
  size_t kind = 0;
  for (const WorkloadConfig& base : {singles(), of_users(singles(), 20), of_users(talks(), 20)}) {
    SCOPED_TRACE(kind++);
    std::array<size_t, 2> most = {};
    for (const size_t longer : {0U, 1U}) {
      WorkloadConfig config = base;
      config.num_requests = longer == 0 ? 500 : 5'000;
      Simulation simulation(simulated(), std::make_unique<GeneratedRequests>(config));
      const ReportBuilder report(simulation);
      do {
        most[longer] = std::max(most[longer], simulation.num_kept());
        ASSERT_LE(simulation.num_kept(), 4 * (simulated().scheduler.max_waiting + 16) + 2 * config.users + 1);
      } while (simulation.step());
      EXPECT_EQ(simulation.num_kept(), 0U);
      EXPECT_EQ(report.report().requests, config.num_requests);
    }
    EXPECT_LE(most[1], 2 * most[0]);
  }
}

/// Also of those that wait, and that are being received.
TEST(GeneratedRequests, ARunThatIsBrokenOffHasToldOfEachRequestOnce) {
  size_t kind = 0;
  for (const WorkloadConfig& config : all_kinds()) {
    SCOPED_TRACE(kind++);
    const Workload workload = make_workload(config);
    SimulationConfig slow_to_receive = simulated();
    slow_to_receive.accept = 5'000'000;
    FollowedSimulation simulation(slow_to_receive, std::make_unique<GeneratedRequests>(config));
    const ReportBuilder report(simulation);
    for (int step = 0; step < 60; ++step) ASSERT_TRUE(simulation.step());
    simulation.break_off();
    std::map<int64_t, uint64_t> tenants;
    uint64_t open = 0;
    for (size_t i = 0; i < config.num_requests; ++i) {
      const KeptRequest& record = simulation.records()[i];
      EXPECT_EQ(record.prompt_tokens, workload.requests[i].prompt_length);
      open += record.arrival >= 0 && record.finished < 0 && !record.refused ? 1 : 0;
      ++tenants[record.tenant];
    }
    EXPECT_GT(open, 0U);
    const std::vector<GroupOutcome> groups = report.by_tenant();
    ASSERT_EQ(groups.size(), tenants.size());
    for (const GroupOutcome& group : groups) EXPECT_EQ(group.requests, tenants[group.of]) << group.of;
  }
}

TEST(GeneratedRequests, ATooLongConversationIsRefusedBeforeTheRun) {
  WorkloadConfig config = talks();
  config.num_requests = 100;
  config.turn_prompt = lengths_of("1000000000");
  EXPECT_THROW(GeneratedRequests{config}, Error);
  config.turns = lengths_of("2");  // of which none is too long
  EXPECT_EQ(GeneratedRequests(config).size(), 100U);
}

class PromptListener final : public SimulationListener {
 public:
  explicit PromptListener(bool wants_prompts) : wants_prompts_(wants_prompts) {}
  bool wants_prompts() const override { return wants_prompts_; }
  void arrived(const SimulatedRequest& of, std::span<const TokenId> prompt) override {
    EXPECT_EQ(prompt.size(), wants_prompts_ ? of.request.prompt_length : 0);
    ++count;
  }
  int count = 0;

 private:
  bool wants_prompts_;
};

TEST(SimulationListener, GetsPromptsIfItWantsThem) {
  for (const bool wants_prompts : {false, true}) {
    Simulation simulation(simulated(), std::make_unique<GeneratedRequests>(of_users(talks(), 3)));
    PromptListener listener(wants_prompts);
    simulation.listen(listener);
    for (int step = 0; step < 100; ++step) simulation.step();
    EXPECT_GT(listener.count, 3);
  }
}

}  // namespace
}  // namespace quire::sim
