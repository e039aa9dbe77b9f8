#include "engine/step_budget.h"

#include <algorithm>

#include <gtest/gtest.h>

#include "tests/engine/virtual_machine.h"
#include "tests/support/units.h"

namespace quire::engine {
namespace {

using test::kMillisecond;

using test::VirtualMachine;

/// Of prompts that have so many tokens at most; 8 sequences may run.
StepBudget budget_of(uint32_t most, uint32_t context_cost = 0) {
  control::SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = most + 8;
  config.context_cost = context_cost;
  return {300 * kMillisecond, config};
}

/// One prompt's part and so many decodes.
control::StepPlan plan_of(uint32_t prompt_tokens, uint32_t position = 0, uint32_t decodes = 0) {
  control::StepPlan plan;
  if (prompt_tokens > 0) {
    control::SeqStep& seq = plan.seqs.emplace_back(SlotId{0}, 0U, position);
    seq.tokens.append(std::vector<TokenId>(prompt_tokens, 1));
  }
  for (uint32_t i = 0; i < decodes; ++i) {
    control::SeqStep& seq = plan.seqs.emplace_back(SlotId{i + 1}, 0U, 500U);
    seq.tokens.append(std::vector<TokenId>(1, 1));
  }
  return plan;
}

uint32_t after(StepBudget& budget, const control::StepPlan& plan, Nanos milliseconds) {
  budget.after(plan, milliseconds * kMillisecond);
  return budget.prompt_tokens();
}

TEST(StepBudget, StaysWherePromptsTakeWhatTheyShould) {
  StepBudget budget = budget_of(100);
  EXPECT_EQ(budget.prompt_tokens(), 100U);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(after(budget, plan_of(100), 300), 100U);
}

TEST(StepBudget, LeavesDecodesTheirTimeBesides) {
  StepBudget budget = budget_of(100);
  EXPECT_EQ(after(budget, plan_of(100, 0, 8), 324), 100U);
  EXPECT_EQ(after(budget, plan_of(100, 0, 8), 648), 50U);
}

TEST(StepBudget, CountsWhatADecodeReads) {
  StepBudget budget = budget_of(100, 1000);  // 500 tokens of context: 1 + 3 * 0.5 each
  EXPECT_EQ(after(budget, plan_of(100, 0, 8), 360), 100U);
  EXPECT_EQ(after(budget, plan_of(100, 0, 8), 720), 50U);
}

TEST(StepBudget, FallsAtOnceWhereAStepTakesLonger) {
  StepBudget budget = budget_of(100);
  EXPECT_EQ(after(budget, plan_of(100), 600), 50U);
}

TEST(StepBudget, RisesByAndByAndNoHigherThanItBegan) {
  StepBudget budget = budget_of(100);
  uint32_t before = after(budget, plan_of(100), 600);
  for (int i = 0; i < 30; ++i) {
    const uint32_t now = after(budget, plan_of(before), Nanos{before} * 2);  // half the target's
    EXPECT_GE(now, before);
    EXPECT_LE(now, before + 25);
    before = now;
  }
  EXPECT_EQ(before, 100U);
}

TEST(StepBudget, LearnsNothingFromStepsThatAreNotFullOfPrompts) {
  StepBudget budget = budget_of(100);
  EXPECT_EQ(after(budget, plan_of(0, 0, 8), 200), 100U);
  EXPECT_EQ(after(budget, plan_of(60), 900), 100U);
  EXPECT_EQ(after(budget, plan_of(0, 0, 100), 900), 100U);
}

TEST(StepBudget, CountsTheContextOfAPromptAsTheSchedulerDoes) {
  // Behind 1,000 tokens each of 50 counts twice: a full step that took what it should.
  StepBudget budget = budget_of(100, 1000);
  EXPECT_EQ(after(budget, plan_of(50, 1000), 300), 100U);
  EXPECT_EQ(after(budget, plan_of(50, 1000), 400), 75U);
}

TEST(StepBudget, FallsWhereAChunkIsTheSchedulersLeast) {
  // 25 of 100 tokens, and each costs 8: twice the budget took twice the time. Of half the tokens a quarter
  // takes what it should.
  StepBudget budget = budget_of(100, 1000);
  EXPECT_EQ(after(budget, plan_of(25, 7000), 600), 50U);
  EXPECT_EQ(after(budget, plan_of(12, 7000), 288), 50U);
}

TEST(StepBudget, IsNeverLessThanTheSequencesThatMayRun) {
  StepBudget budget = budget_of(16);
  EXPECT_EQ(after(budget, plan_of(16), 3600'000), 8U);
  budget = budget_of(4);
  EXPECT_EQ(after(budget, plan_of(4), 3600'000), 4U);
}

/// The machine of docs/measurements/cpu.md with a model of a billion parameters, by its times of prompts of
/// 2,048 and 8,100 tokens: a token, one behind another, one that decodes, and all weights.
struct Costs {
  double token;
  double behind;
  double decode;
  double weights;

  engine::StepCosts function() const {
    return [*this](const backend::StepWork& work) {
      const auto times = [](double cost, uint64_t count) { return cost * static_cast<double>(count); };
      const double context = times(behind, work.chunk_prefix) + times(behind / 2, work.chunk_squares);
      const double compute = times(token, work.prefill_tokens) + times(decode, work.decoding);
      return StepCost{std::max(weights, compute) + context + times(1000, work.decode_context), 1e6};
    };
  }
};
constexpr Costs kBf16{2.23e6, 436, 3e6, 62e6};
constexpr Costs kInt8{1.6e6, 383, 2.2e6, 31e6};

struct Join {
  Nanos ttft;
  Nanos pause;  // the longest step
};

/// A prompt comes to so many streams. `error`: the factor of a context's cost that a probe found.
Join join(const Costs& costs, uint32_t prompt, uint32_t streams, double error = 1) {
  constexpr Nanos kTarget = 240 * kMillisecond;
  control::SchedulerConfig config = VirtualMachine::config(2048);
  config.max_num_seqs = 64;
  config.max_model_len = 20'000;
  config.context_cost = static_cast<uint32_t>(1e6 * costs.behind / costs.token * error);
  config.max_num_batched_tokens = static_cast<uint32_t>(static_cast<double>(kTarget) / costs.token) + 64;
  VirtualMachine machine(config, costs.function());
  machine.budget.emplace(kTarget, config);
  for (uint32_t i = 0; i < streams; ++i) EXPECT_TRUE(machine.scheduler.add(machine.spec(64, 1000)));
  for (int i = 0; i < 40 && streams > 0; ++i) machine.step();
  const control::SeqSpec spec = machine.spec(prompt, 1);
  const Nanos came = machine.now;
  EXPECT_TRUE(machine.scheduler.add(spec));
  Join out{};
  while (!machine.first_token.contains(spec.id)) {
    const Nanos before = machine.now;
    machine.step();
    out.pause = std::max(out.pause, machine.now - before);
  }
  out.ttft = machine.now - came;
  return out;
}

TEST(StepBudget, StreamsPauseAsLittleAsWantedAndTheNewcomerPaysLittleForIt) {
  for (const Costs& costs : {kBf16, kInt8}) {
    for (const uint32_t prompt : {2'000U, 16'000U}) {
      const Join among = join(costs, prompt, 8);
      EXPECT_LE(among.pause, 270 * kMillisecond) << prompt;
      const double ratio = static_cast<double>(among.ttft) / static_cast<double>(join(costs, prompt, 0).ttft);
      EXPECT_LE(ratio, 1.12) << prompt;
    }
  }
}

TEST(StepBudget, APauseStaysShortWhereTheProbeMisjudgedTheContext) {
  for (const double error : {0.5, 2.0}) {
    EXPECT_LE(join(kInt8, 16'000, 8, error).pause, 270 * kMillisecond) << error;
  }
}

TEST(StepBudget, ManyStreamsDoNotStarveANewcomer) {
  const Join alone = join(kBf16, 2'000, 0);
  const Join among = join(kBf16, 2'000, 60);
  EXPECT_LE(among.ttft, 2 * alone.ttft);
  EXPECT_LE(among.pause, 450 * kMillisecond);
}

}  // namespace
}  // namespace quire::engine
