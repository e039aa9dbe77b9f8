// The executor that stands in for a model in the tests of engine and server.
#include "tests/support/fake_executor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/backend/bad_plans.h"
#include "tests/backend/variants.h"

namespace quire::test {
namespace {

FakeExecutorConfig config_of(uint32_t num_blocks, uint32_t max_slots) {
  FakeExecutorConfig config;
  config.num_blocks = num_blocks;
  config.max_slots = max_slots;
  config.vocab_size = 300;
  return config;
}

TEST(FakeExecutor, DependsOnTheSequenceAlone) {
  const MakeExecutor make{[](uint32_t num_blocks, uint32_t max_slots, uint32_t num_host_blocks) {
    FakeExecutorConfig config = config_of(num_blocks, max_slots);
    config.num_host_blocks = num_host_blocks;
    return std::make_unique<FakeExecutor>(config);
  }};
  const auto specs = mixed_requests(300, 32, 40);
  const auto alone = run_alone(make, specs);
  expect_same_in_every_way(make, specs, alone);
  expect_same_as_forks(make, specs, alone, run_alone(make, second_choices(specs)));
}

TEST(FakeExecutor, RefusesPlansThatContradictThemselves) {
  for (const BadPlan& bad : bad_plans()) {
    FakeExecutor executor(config_of(8, 2));
    executor.wait(executor.submit(first_plan()));
    EXPECT_THROW(executor.submit(bad.plan), Error) << bad.name;
  }
}

TEST(FakeExecutor, RefusesWritesToSharedBlocksAndReadsOfNothing) {
  control::StepPlan plan;
  plan.added.resize(1);
  plan.added[0].slot = 1;
  plan.added[0].prompt_length = 6;
  plan.added[0].blocks = {0};
  plan.seqs.resize(2);
  plan.seqs[0].slot = 1;
  plan.seqs[0].first_position = 5;
  plan.seqs[0].tokens = {9};
  plan.seqs[1].slot = 0;  // goes on
  plan.seqs[1].first_position = 5;
  plan.seqs[1].tokens = {6};
  FakeExecutor shared(config_of(8, 2));
  shared.wait(shared.submit(first_plan()));
  EXPECT_THROW(shared.submit(plan), Error);
  plan.added[0].blocks = {3};  // never written
  FakeExecutor empty(config_of(8, 2));
  empty.wait(empty.submit(first_plan()));
  EXPECT_THROW(empty.submit(plan), Error);
  // A copy makes it right.
  plan.added[0].blocks = {0};
  plan.copies = {{0, 3}};
  plan.updates = {{1, 0, 3}};
  FakeExecutor copied(config_of(8, 2));
  copied.wait(copied.submit(first_plan()));
  EXPECT_NO_THROW(copied.submit(plan));
  EXPECT_EQ(copied.slots_in_use(), 2U);
}

TEST(FakeExecutor, FollowsAScriptAndFailsWhenTold) {
  FakeExecutorConfig config = config_of(64, 4);
  config.next = scripted_continuation({7, 8, -1});
  const MakeExecutor make{
      [&](uint32_t, uint32_t, uint32_t) { return std::make_unique<FakeExecutor>(config); }};
  const auto found = run_alone(make, mixed_requests(300, 1, 10));
  ASSERT_EQ(found[0].tokens.size(), 2U);
  EXPECT_EQ(found[0].tokens[0].token, 7);
  EXPECT_EQ(found[0].tokens[1].token, 8);
  EXPECT_EQ(found[0].finish, control::FinishReason::kError);
  EXPECT_THAT(found[0].error, testing::HasSubstr("made to fail"));
}

}  // namespace
}  // namespace quire::test
