#include "engine/fair_shares.h"

#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/virtual_machine.h"

namespace quire::engine {
namespace {

using test::VirtualMachine;

control::SchedulerConfig one_slot() {
  control::SchedulerConfig config = VirtualMachine::config();
  config.scheduling = control::SchedulingKind::kFair;
  config.max_num_seqs = 1;
  return config;
}

TEST(FairShares, WhatOpenStepsSampleCountsOnce) {
  VirtualMachine machine(one_slot(), test::some_costs());
  ASSERT_TRUE(machine.scheduler.add(machine.spec(20, 3)));
  FairShares shares;
  machine.step();
  shares.see(machine.scheduler);
  EXPECT_EQ(shares.served(0), 20 + 2);
  shares.expect(1, 2);
  const std::vector<control::StepPlan> open = {machine.scheduler.plan(), machine.scheduler.plan()};
  ASSERT_EQ(open[1].seqs.size(), 1U);
  shares.see(machine.scheduler);
  EXPECT_EQ(shares.served(0), 20 + 6);
  shares.forget(1);
  EXPECT_EQ(shares.served(0), 20 + 6);
}

TEST(FairShares, OfWhatWasExpectedOnlyTheRestCountsAtTheEnd) {
  VirtualMachine machine(one_slot(), test::some_costs());
  ASSERT_TRUE(machine.scheduler.add(machine.spec(20, 11)));
  FairShares shares;
  machine.step();
  shares.see(machine.scheduler);
  shares.expect(1, 10);
  for (int i = 0; i < 8; ++i) machine.step();
  shares.see(machine.scheduler);
  EXPECT_EQ(shares.served(0), 20 + 2 * 9);
  shares.forget(1);
  EXPECT_EQ(shares.served(0), 20 + 2 * 11);
}

TEST(FairShares, NoTenantThatWaitsIsForgotten) {
  control::SchedulerConfig config = one_slot();
  config.max_waiting = 2000;
  VirtualMachine machine(config, test::some_costs());
  FairShares shares;
  const auto arrives = [&](uint64_t tenant) {
    control::SeqSpec spec = machine.spec(20, 3);
    spec.tenant = tenant;
    shares.see(machine.scheduler);
    shares.arrives(tenant);
    ASSERT_TRUE(machine.scheduler.add(std::move(spec)));
  };
  arrives(0);
  machine.step();
  arrives(0);
  machine.run();
  shares.forget(1);
  arrives(0);
  machine.step();
  shares.see(machine.scheduler);
  for (uint64_t tenant = 1; tenant <= 1100; ++tenant) arrives(tenant);
  EXPECT_EQ(shares.served(1), 22);
  EXPECT_EQ(shares.starts_at(5000), 22);
}

TEST(FairShares, WhatIsOnlyAskedCountsNothing) {
  VirtualMachine machine(one_slot(), test::some_costs());
  FairShares shares;
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(machine.scheduler.add(machine.spec(20, 3)));
  machine.step();
  shares.see(machine.scheduler);
  EXPECT_EQ(shares.starts_at(1), 22);
  EXPECT_EQ(shares.served(1), 0);
  shares.arrives(1);
  EXPECT_EQ(shares.served(1), 22);
}

}  // namespace
}  // namespace quire::engine
