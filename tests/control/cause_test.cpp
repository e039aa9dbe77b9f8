// What the scheduler says that its decisions went by.
#include "control/cause.h"

#include <algorithm>
#include <map>
#include <vector>

#include <gtest/gtest.h>

#include "tests/control/driver.h"

namespace quire::control {
namespace {

using test::a;
using test::b;
using test::c;
using test::d;
using test::Driver;
using test::text;

class Causes final : public CauseSink {
 public:
  void take(const Cause& cause) override { list.push_back(cause); }
  std::vector<Cause> of(CauseKind kind) const {
    std::vector<Cause> out;
    std::ranges::copy_if(list, std::back_inserter(out), [&](const Cause& each) { return each.kind == kind; });
    return out;
  }
  std::vector<Cause> list;
};

SchedulerConfig config_of(SchedulingKind policy, uint32_t slots, uint32_t blocks = 64) {
  SchedulerConfig config;
  config.num_blocks = blocks;
  config.block_size = 4;
  config.max_num_seqs = slots;
  config.max_num_batched_tokens = 64;
  config.max_model_len = 128;
  config.watermark_bp = 0;
  config.scheduling = policy;
  return config;
}

/// One slot, which `a` has; b waits for it and c, which came later and is taken first; then the slot is free.
struct Race {
  explicit Race(SchedulingKind policy) : driver(config_of(policy, 1)) {
    driver.scheduler.listen(nullptr, &causes);
    driver.add(a, text(9, 0), 2);
    driver.step();
    SeqSpec first = Driver::spec(b, text(20, 5000), 8);
    SeqSpec second = Driver::spec(c, text(12, 0), 4);
    first.arrived = 1;
    second.arrived = 2;
    first.expected_tokens = 8;
    second.expected_tokens = 4;
    second.ttft_deadline = 1'000'000;
    second.priority = -2;
    second.tenant = 7;
    driver.add(std::move(first));
    driver.add(std::move(second));
    causes.list.clear();
    driver.steps(2);
  }
  Driver driver;
  Causes causes;
};

TEST(Cause, SaysWhoWasTakenFirstAndByWhatUnderEveryPolicy) {
  const std::map<SchedulingKind, Ground> grounds = {
      {SchedulingKind::kSrpt, Ground::kWork},         {SchedulingKind::kSlo, Ground::kDeadline},
      {SchedulingKind::kPriority, Ground::kPriority}, {SchedulingKind::kFair, Ground::kShare},
      {SchedulingKind::kLpm, Ground::kCached},
  };
  for (const auto& [policy, ground] : grounds) {
    SCOPED_TRACE(kSchedulingNames[static_cast<size_t>(policy)]);
    const Race race(policy);
    const auto first = race.causes.of(CauseKind::kFirst);
    const auto behind = race.causes.of(CauseKind::kBehind);
    ASSERT_EQ(first.size(), 1U);
    ASSERT_EQ(behind.size(), 1U);
    EXPECT_EQ(first[0].seq, c);
    EXPECT_EQ(behind[0].seq, b);
    EXPECT_EQ(first[0].ground, ground);
    EXPECT_EQ(behind[0].ground, ground);
    if (policy == SchedulingKind::kLpm) {
      EXPECT_EQ(first[0].value, 2);
      EXPECT_EQ(behind[0].value, 0);
    } else {
      EXPECT_LT(first[0].value, behind[0].value);
    }
    if (policy == SchedulingKind::kPriority) {
      EXPECT_EQ(first[0].value, -2);
      EXPECT_EQ(behind[0].value, 0);
    }
  }
}

TEST(Cause, WithoutComparisonNobodyIsBehind) {
  const Race race(SchedulingKind::kFcfs);
  const auto first = race.causes.of(CauseKind::kFirst);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].seq, b);
  EXPECT_EQ(first[0].ground, Ground::kArrival);
  EXPECT_TRUE(race.causes.of(CauseKind::kBehind).empty());
}

TEST(Cause, IsToldAgainOnlyWhenSomethingElseDecides) {
  SchedulerConfig config = config_of(SchedulingKind::kPriority, 4, 6);
  Driver driver(config);
  Causes causes;
  driver.scheduler.listen(nullptr, &causes);
  driver.add(a, text(16, 0), 4);
  driver.step();
  driver.add(b, text(12, 100), 2);
  SeqSpec later = Driver::spec(c, text(4, 200), 2);
  later.arrived = 1;
  driver.add(std::move(later));
  causes.list.clear();
  driver.steps(2);  // b is first and has no room
  EXPECT_EQ(causes.of(CauseKind::kFirst).size(), 1U);
  EXPECT_EQ(causes.of(CauseKind::kBehind).size(), 1U);
  const auto needs = causes.of(CauseKind::kShort);
  ASSERT_EQ(needs.size(), 2U);
  EXPECT_EQ(needs[0].seq, b);
  EXPECT_EQ(needs[0].a, 3U);
  EXPECT_EQ(needs[0].b, 1U);
  SeqSpec urgent = Driver::spec(d, text(12, 300), 2);
  urgent.priority = -1;
  driver.add(std::move(urgent));
  causes.list.clear();
  driver.step();
  const auto first = causes.of(CauseKind::kFirst);
  ASSERT_EQ(first.size(), 1U);
  EXPECT_EQ(first[0].seq, d);
  EXPECT_EQ(causes.of(CauseKind::kBehind).size(), 2U);  // what decided was the arrival, and is the priority
}

TEST(Cause, SaysForWhomOneGivesWayAndWhyIt) {
  const std::map<VictimKind, Ground> grounds = {{VictimKind::kLastAdmitted, Ground::kLastAdmitted},
                                                {VictimKind::kLowestPriority, Ground::kLowest},
                                                {VictimKind::kLeastProgress, Ground::kLeastDone}};
  for (const auto& [kind, ground] : grounds) {
    SchedulerConfig config = config_of(SchedulingKind::kFcfs, 4, 4);
    config.victim = kind;
    config.preemption = PreemptionKind::kSwap;
    config.num_host_blocks = 1;
    Driver driver(config);
    Causes causes;
    driver.scheduler.listen(nullptr, &causes);
    driver.add(a, text(7, 0), 6);
    SeqSpec other = Driver::spec(b, text(6, 100), 8);
    other.priority = 3;
    driver.add(std::move(other));
    for (int i = 0; i < 8 && causes.of(CauseKind::kVictim).empty(); ++i) driver.step();
    const auto victims = causes.of(CauseKind::kVictim);
    ASSERT_EQ(victims.size(), 1U);
    EXPECT_EQ(victims[0].seq, b);
    EXPECT_EQ(victims[0].other, a);
    EXPECT_EQ(victims[0].ground, ground);
    if (ground == Ground::kLowest) {
      EXPECT_EQ(victims[0].value, 3);
    }
    if (ground == Ground::kLeastDone) {
      EXPECT_EQ(victims[0].value, 7);
    }
    const auto kept = causes.of(CauseKind::kNotMoved);
    ASSERT_EQ(kept.size(), 1U);
    EXPECT_EQ(kept[0].a, 2U);
    EXPECT_EQ(kept[0].b, 1U);
  }
}

TEST(Cause, ChangesNoDecision) {
  for (const SchedulingKind policy :
       {SchedulingKind::kPriority, SchedulingKind::kLpm, SchedulingKind::kFair}) {
    uint64_t digests[2] = {};
    Causes causes;
    for (const bool told : {false, true}) {
      Driver driver(config_of(policy, 2, 12));
      if (told) driver.scheduler.listen(nullptr, &causes);
      for (SeqId id = 0; id < 12; ++id) {
        SeqSpec spec = Driver::spec(id, text(3 + static_cast<uint32_t>(id * 5 % 11), 0), 5);
        spec.priority = static_cast<int32_t>(id % 3);
        spec.tenant = id % 2;
        driver.add(std::move(spec));
      }
      driver.steps(60);
      EXPECT_FALSE(driver.scheduler.has_work());
      digests[told ? 1 : 0] = driver.scheduler.digest();
    }
    EXPECT_EQ(digests[0], digests[1]);
    EXPECT_FALSE(causes.of(CauseKind::kPublished).empty());
  }
}

}  // namespace
}  // namespace quire::control
