#include "backend/sim/kv_check.h"

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "backend/sim/sim_executor.h"
#include "base/error.h"
#include "control/scheduler.h"
#include "sim/simulation.h"

namespace quire::sim {
namespace {

using control::PreemptionKind;
using control::StepPlan;

control::SchedulerConfig tight(PreemptionKind preemption, std::vector<uint32_t> windows = {0}) {
  control::SchedulerConfig config;
  config.num_blocks = 24;
  config.block_size = 4;
  config.kv_windows = std::move(windows);
  config.max_num_seqs = 6;
  config.max_num_batched_tokens = 24;
  config.max_model_len = 60;
  config.preemption = preemption;
  config.num_host_blocks = preemption == PreemptionKind::kRecompute ? 0 : 40;
  return config;
}

Workload crowd(uint32_t choices) {
  WorkloadConfig config;
  config.seed = 5;
  config.num_requests = 120;
  config.rate_thousandths = 40'000;
  config.prompt = Lengths::parse("uniform:2:14", "prompt");
  config.output = Lengths::parse("uniform:1:20", "output");
  config.prefix_length = 10;
  config.num_prefixes = 3;
  config.vocab_size = 500;
  Workload workload = make_workload(config);
  workload.choices = choices;
  return workload;
}

TEST(KvCheck, FindsNothingInWhatTheSchedulerPlans) {
  for (const PreemptionKind preemption : {PreemptionKind::kRecompute, PreemptionKind::kSwap}) {
    for (const std::vector<uint32_t>& windows : {std::vector<uint32_t>{0}, {0, 8}}) {
      for (const uint32_t depth : {1U, 3U}) {
        for (const uint32_t choices : {1U, 3U}) {
          const Workload workload = crowd(choices);
          SimulationConfig config{.scheduler = tight(preemption, windows), .depth = depth};
          if (windows.size() > 1) config.scheduler.num_blocks = 48;
          Simulation plain(config, workload);
          plain.run();
          config.check_kv = true;
          Simulation checked(config, workload);
          EXPECT_NO_THROW(checked.run());
          EXPECT_EQ(checked.digest(), plain.digest()) << "a check changes nothing";
          EXPECT_GT(checked.stats().total_preemptions, 0U);
          EXPECT_GT(checked.stats().total_prefix_hit_tokens, 0U);
        }
      }
    }
  }
}

/// Runs sequences that share a prefix, some with several answers, and damages the first plan that `damage`
/// takes. Returns what the check says; nullopt if no plan was damaged.
std::optional<std::string> message_for(PreemptionKind preemption,
                                       const std::function<bool(StepPlan&)>& damage) {
  control::Scheduler scheduler(tight(preemption));
  backend::sim::SimExecutor executor(scheduler.config(), backend::sim::LinearCost{},
                                     {.vocab_size = 500, .seed = 1, .check_kv = true});
  for (SeqId id = 0; id < 40; ++id) {
    control::SeqSpec spec;
    spec.id = id;
    spec.max_tokens = 20;
    spec.sampling.seed = id / 2;
    spec.sampling.choice = static_cast<uint32_t>(id % 2);
    backend::sim::tell_history(spec.sampling);
    for (TokenId token = 0; token < 14; ++token) {
      spec.prompt.push_back(token < 8 ? token
                                      : static_cast<TokenId>(100 + id / 2 + static_cast<SeqId>(token)));
    }
    if (id % 2 == 1) spec.fork_of = id - 1;
    EXPECT_TRUE(scheduler.add(std::move(spec)));
  }
  bool damaged = false;
  while (scheduler.has_work()) {
    StepPlan plan = scheduler.plan();
    StepPlan told = plan;
    if (!damaged) damaged = damage(told);
    try {
      control::StepResult result = executor.wait(executor.submit(told));
      scheduler.commit(plan, std::move(result));
    } catch (const Error& error) {
      return error.what();
    }
  }
  if (!damaged) return std::nullopt;
  return "";
}

struct Defect {
  const char* name;
  PreemptionKind preemption;
  std::function<bool(StepPlan&)> damage;
};

class KvCheckDefects : public testing::TestWithParam<Defect> {};

TEST_P(KvCheckDefects, AreFoundAndNamed) {
  const std::optional<std::string> said = message_for(GetParam().preemption, GetParam().damage);
  ASSERT_TRUE(said) << "no plan was damaged";
  for (const char* part :
       {"K/V check: step ", "the sequence in slot ", "position ", "block ", "expected ", "found "}) {
    EXPECT_THAT(*said, testing::HasSubstr(part));
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, KvCheckDefects,
    testing::Values(Defect{"ABlockOfAnother", PreemptionKind::kRecompute,
                           [](StepPlan& plan) {
                             if (plan.seqs.size() < 2 || plan.seqs[0].new_blocks.empty() ||
                                 plan.seqs[1].new_blocks.empty()) {
                               return false;
                             }
                             plan.seqs[1].new_blocks.front() = plan.seqs[0].new_blocks.front();
                             return true;
                           }},
                    Defect{"AHitOfOtherTokens", PreemptionKind::kRecompute,
                           [](StepPlan& plan) {
                             if (plan.added.empty() || plan.added[0].blocks.size() < 2) return false;
                             std::swap(plan.added[0].blocks[0], plan.added[0].blocks[1]);
                             return true;
                           }},
                    Defect{"ACopyThatIsMissing", PreemptionKind::kRecompute,
                           [](StepPlan& plan) { return !std::exchange(plan.copies, {}).empty(); }},
                    Defect{"ATableThatIsNotUpdated", PreemptionKind::kRecompute,
                           [](StepPlan& plan) {
                             if (plan.updates.empty()) return false;
                             plan.updates[0].block = (plan.updates[0].block + 1) % 24;
                             return true;
                           }},
                    Defect{"AMoveToTheHostThatIsMissing", PreemptionKind::kSwap,
                           [](StepPlan& plan) { return !std::exchange(plan.moves_out, {}).empty(); }},
                    Defect{"AMoveBackOfAnother", PreemptionKind::kSwap,
                           [](StepPlan& plan) {
                             if (plan.moves_in.empty()) return false;
                             plan.moves_in[0].host = (plan.moves_in[0].host + 1) % 40;
                             return true;
                           }}),
    [](const auto& each) { return std::string(each.param.name); });

TEST(KvCheck, WantsTheTokensOfWhatBeginsWithBlocksOfOthers) {
  const std::optional<std::string> said = message_for(PreemptionKind::kRecompute, [](StepPlan& plan) {
    if (plan.added.empty() || plan.added[0].blocks.empty()) return false;
    plan.added[0].history.clear();
    plan.added[0].sampling.presence_penalty = 0;
    return true;
  });
  ASSERT_TRUE(said);
  EXPECT_THAT(*said, testing::HasSubstr("its tokens are not told"));
}

TEST(KvCheck, BoundsItsMemory) {
  control::SchedulerConfig config = tight(PreemptionKind::kRecompute);
  config.num_blocks = 1 << 28;
  EXPECT_THROW(backend::sim::SimExecutor(config, backend::sim::LinearCost{}, {.check_kv = true}), Error);
}

}  // namespace
}  // namespace quire::sim
