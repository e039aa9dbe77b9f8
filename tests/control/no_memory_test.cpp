// A sequence that cannot be added for want of memory leaves nothing, and none needs memory to end.
#include <new>
#include <string>
#include <tuple>

#include <gtest/gtest.h>

#include "control/scheduler.h"
#include "tests/control/driver.h"
#include "tests/support/failing_memory.h"

namespace quire::test {
namespace {

class NoMemory : public testing::TestWithParam<std::tuple<control::EvictionKind, control::SchedulingKind>> {
 protected:
  void SetUp() override {
    if (!QUIRE_ALLOCATIONS_FAIL) GTEST_SKIP() << "sanitizers keep their own allocator";
  }
  static control::SchedulerConfig config() {
    control::SchedulerConfig out = small();
    out.eviction = std::get<0>(GetParam());
    out.scheduling = std::get<1>(GetParam());
    out.max_waiting = 100;
    out.num_host_blocks = 8;
    out.preemption = control::PreemptionKind::kSwap;
    return out;
  }
};
INSTANTIATE_TEST_SUITE_P(
    Scheduler, NoMemory,
    testing::Combine(testing::ValuesIn(control::kEvictionKinds),
                     testing::Values(control::SchedulingKind::kFcfs, control::SchedulingKind::kSrpt,
                                     control::SchedulingKind::kFair, control::SchedulingKind::kLpm)));

control::SeqSpec spec(SeqId id) {
  // Half of a prompt is that of others, and everyone is another tenant.
  std::vector<TokenId> prompt = text(8, static_cast<TokenId>(100 * (id % 3)));
  for (TokenId own = 0; own < 9; ++own) prompt.push_back(static_cast<TokenId>(1000 + 10 * id) + own);
  control::SeqSpec out = Driver::spec(id, prompt, 12);
  out.tenant = id;
  return out;
}

/// How often adding it fails: each time with one allocation more before.
int add_at_last(Driver& driver, const control::SeqSpec& wanted) {
  for (int failures = 0;; ++failures) {
    control::SeqSpec copy = wanted;
    try {
      allocations_left = failures;
      const auto added = driver.scheduler.add(std::move(copy));
      allocations_left = -1;
      EXPECT_TRUE(added);
      return failures;
    } catch (const std::bad_alloc&) {
      allocations_left = -1;
      EXPECT_EQ(driver.scheduler.check_invariants(), "");
    }
  }
}

TEST_P(NoMemory, WhatCannotBeAddedLeavesNothing) {
  Driver short_of_memory(config());
  Driver rich(config());
  int failures = 0;
  for (SeqId id = 0; id < 20; ++id) {
    failures += add_at_last(short_of_memory, spec(id));
    rich.add(spec(id));
    EXPECT_EQ(short_of_memory.scheduler.has_work(), rich.scheduler.has_work());
    if (id % 2 == 1) continue;
    EXPECT_EQ(short_of_memory.step(), rich.step());
  }
  EXPECT_GT(failures, 20);
  while (rich.scheduler.has_work()) ASSERT_EQ(short_of_memory.step(), rich.step());
  EXPECT_FALSE(short_of_memory.scheduler.has_work());
  EXPECT_EQ(short_of_memory.scheduler.digest(), rich.scheduler.digest());
}

TEST_P(NoMemory, AnEndFromOutsideNeedsNone) {
  Driver driver(config());
  const auto abort = [&](SeqId id) {
    bool thrown = false;
    allocations_left = 0;
    try {
      driver.scheduler.abort(id);
    } catch (const std::bad_alloc&) {
      thrown = true;
    }
    allocations_left = -1;
    EXPECT_FALSE(thrown) << id;
    EXPECT_EQ(driver.scheduler.check_invariants(), "");
  };
  for (SeqId id = 0; id < 60; ++id) {
    driver.add(spec(id));
    driver.steps(2);
    if (id % 3 == 2) abort(id - 2);  // one that runs, waits, or is in the host's pool
    if (id % 5 == 4) abort(id);      // one that has hardly begun
  }
  driver.plan();
  control::StepResult result = driver.execute();
  for (SeqId id = 0; id < 60; ++id) abort(id);
  driver.commit(std::move(result));
  EXPECT_FALSE(driver.scheduler.has_work());
  EXPECT_EQ(driver.scheduler.stats().blocks_referenced, 0U);
}

}  // namespace
}  // namespace quire::test
