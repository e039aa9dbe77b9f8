#include "engine/step_budget.h"

#include <gtest/gtest.h>

namespace quire::engine {
namespace {

constexpr Nanos kMillisecond = 1'000'000;

StepBudget budget_of(uint32_t most, uint32_t context_cost = 0) {
  control::SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = most;
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

TEST(StepBudget, StaysWhereStepsTakeWhatTheyShould) {
  StepBudget budget = budget_of(100);
  for (int i = 0; i < 5; ++i) EXPECT_EQ(budget.after(plan_of(92, 0, 8), 300 * kMillisecond), 100U);
}

TEST(StepBudget, FallsAtOnceWhereAStepTakesLonger) {
  StepBudget budget = budget_of(100);
  EXPECT_EQ(budget.after(plan_of(100), 600 * kMillisecond), 50U);
}

TEST(StepBudget, RisesByAndByAndNoHigherThanItBegan) {
  StepBudget budget = budget_of(100);
  budget.after(plan_of(100), 600 * kMillisecond);
  uint32_t before = 50;
  for (int i = 0; i < 30; ++i) {
    const uint32_t now =
        budget.after(plan_of(before), Nanos{before} * 2 * kMillisecond);  // half the target's
    EXPECT_GE(now, before);
    EXPECT_LE(now, before + 25);
    before = now;
  }
  EXPECT_EQ(before, 100U);
}

TEST(StepBudget, LearnsNothingFromStepsThatAreNotFull) {
  StepBudget budget = budget_of(100);
  EXPECT_EQ(budget.after(plan_of(0, 0, 8), 200 * kMillisecond), 100U);
  EXPECT_EQ(budget.after(plan_of(60), 900 * kMillisecond), 100U);
}

TEST(StepBudget, CountsTheContextOfAPromptAsTheSchedulerDoes) {
  // Behind 1,000 tokens each of 50 counts twice: a full step that took what it should.
  StepBudget budget = budget_of(100, 1000);
  EXPECT_EQ(budget.after(plan_of(50, 1000), 300 * kMillisecond), 100U);
  EXPECT_EQ(budget.after(plan_of(50, 1000), 400 * kMillisecond), 75U);
}

TEST(StepBudget, IsNeverLessThanTheSequencesThatMayRun) {
  StepBudget budget = budget_of(16);
  EXPECT_EQ(budget.after(plan_of(16), 3600'000 * kMillisecond), 8U);
}

}  // namespace
}  // namespace quire::engine
