// Scheduling policies: who comes in first. Each visibly differs from first come, first served, and keeps what
// it promises. (That every admission is the one that the policy names, SchedulerProperty checks.)
#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "tests/control/driver.h"
#include "tests/support/units.h"

namespace quire::test {
namespace {

using testing::ElementsAre;

/// One sequence at a time, so that the order of order_of_ends is the order of admissions.
control::SchedulerConfig one_by_one(control::SchedulingKind scheduling) {
  control::SchedulerConfig config = small();
  config.max_num_seqs = 1;
  config.max_waiting = 1000;
  config.scheduling = scheduling;
  return config;
}

/// Steps until all have ended; the sequences in the order of their order_of_ends.
std::vector<SeqId> order_of_ends(Driver& driver) {
  std::vector<SeqId> order;
  while (driver.scheduler.has_work()) {
    driver.step();
    for (const control::SeqEvent& event : driver.events) {
      if (event.finish) order.push_back(event.id);
    }
  }
  return order;
}

TEST(Fcfs, NobodyIsOvertaken) {
  Driver driver(one_by_one(control::SchedulingKind::kFcfs));
  driver.add(a, text(30), 20);
  control::SeqSpec urgent = Driver::spec(b, text(4, 50), 2);
  urgent.priority = -100;
  urgent.ttft_deadline = 0;
  driver.add(urgent);
  driver.add(c, text(4, 60), 1);
  EXPECT_THAT(order_of_ends(driver), ElementsAre(a, b, c));
}

/// The sum over all of the step in which each ended.
uint64_t sum_of_completions(control::SchedulingKind scheduling) {
  Driver driver(one_by_one(scheduling));
  driver.add(a, text(30), 20);
  driver.add(b, text(4, 50), 2);
  driver.add(c, text(4, 60), 2);
  uint64_t sum = 0;
  while (driver.scheduler.has_work()) {
    driver.step();
    for (const control::SeqEvent& event : driver.events) sum += event.finish ? driver.last().step : 0;
  }
  return sum;
}

TEST(Srpt, TheShortestComesFirst) {
  Driver driver(one_by_one(control::SchedulingKind::kSrpt));
  driver.add(a, text(30), 20);
  driver.add(b, text(4, 50), 5);
  driver.add(c, text(4, 60), 2);
  EXPECT_THAT(order_of_ends(driver), ElementsAre(c, b, a));
}

TEST(Srpt, EndsThemSoonerOnTheWhole) {
  EXPECT_LT(sum_of_completions(control::SchedulingKind::kSrpt),
            sum_of_completions(control::SchedulingKind::kFcfs));
}

/// The same of random requests whose answers are as long as expected.
uint64_t sum_of_completions(control::SchedulingKind scheduling, uint64_t seed) {
  control::SchedulerConfig config = one_by_one(scheduling);
  config.enable_prefix_caching = false;
  config.costs.prefill_token = 1;  // 8 of them are a step, as one decoded token is
  config.costs.decode_token = 8;
  Driver driver(config);
  SplitMix64 random(seed);
  for (SeqId id = 0; id < 20; ++id) {
    const auto prompt = static_cast<uint32_t>(8 * (1 + random.below(3)));
    control::SeqSpec seq = Driver::spec(id, text(prompt), 1 + static_cast<uint32_t>(random.below(20)));
    seq.expected_tokens = seq.max_tokens;
    driver.add(seq);
  }
  uint64_t sum = 0;
  while (driver.scheduler.has_work()) {
    driver.step();
    for (const control::SeqEvent& event : driver.events) sum += event.finish ? driver.last().step : 0;
  }
  return sum;
}

TEST(Srpt, IsNeverSlowerOnTheWholeIfLengthsAreKnown) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    EXPECT_LT(sum_of_completions(control::SchedulingKind::kSrpt, seed),
              sum_of_completions(control::SchedulingKind::kFcfs, seed));
  }
}

TEST(Srpt, AGivenLengthCountsForMoreThanTheBound) {
  Driver driver(one_by_one(control::SchedulingKind::kSrpt));
  control::SeqSpec long_bound = Driver::spec(a, text(4), 20);
  long_bound.expected_tokens = 2;
  driver.add(Driver::spec(b, text(4, 50), 5));
  driver.add(long_bound);
  driver.plan();
  EXPECT_EQ(driver.last().added.at(0).sampling.seed, a);
}

TEST(Srpt, LearnsHowLongAnswersAre) {
  Driver driver(one_by_one(control::SchedulingKind::kSrpt));
  for (SeqId id = 10; id < 14; ++id) {  // all end by a stop token after two tokens
    control::SeqSpec seq = Driver::spec(id, text(4), 20);
    seq.stop_tokens = {7};
    driver.told[id] = {5, 7};
    driver.add(seq);
  }
  order_of_ends(driver);
  // Both are expected to be short, so their prompts tell them apart.
  driver.add(a, text(20), 10);
  driver.add(b, text(4, 50), 20);
  driver.plan();
  EXPECT_EQ(driver.last().added.at(0).sampling.seed, b);
}

TEST(Slo, TheLeastSlackComesFirst) {
  Driver driver(one_by_one(control::SchedulingKind::kSlo));
  control::SeqSpec late = Driver::spec(a, text(4), 2);
  late.ttft_deadline = 900 * kMillisecond;
  control::SeqSpec soon = Driver::spec(b, text(4, 50), 2);
  soon.arrived = 100 * kMillisecond;
  soon.ttft_deadline = 300 * kMillisecond;
  control::SeqSpec lengthy =
      Driver::spec(c, text(40, 60), 2);  // the same deadline, but more to do until then
  lengthy.arrived = 100 * kMillisecond;
  lengthy.ttft_deadline = 300 * kMillisecond;
  driver.add(late);
  driver.add(soon);
  driver.add(lengthy);
  EXPECT_THAT(order_of_ends(driver), ElementsAre(c, b, a));
}

/// By how much the first token that is latest misses its deadline, in steps, of random requests of one
/// length.
int64_t latest(control::SchedulingKind scheduling, uint64_t seed) {
  control::SchedulerConfig config = one_by_one(scheduling);
  config.costs.prefill_token = kMillisecond / 8;  // a step of 8 is a millisecond
  Driver driver(config);
  SplitMix64 random(seed);
  std::map<SeqId, int64_t> deadlines;
  for (SeqId id = 0; id < 20; ++id) {
    deadlines[id] = static_cast<int64_t>(1 + random.below(25));
    control::SeqSpec seq = Driver::spec(id, text(8, static_cast<TokenId>(10 * id)), 1);
    seq.ttft_deadline = deadlines[id] * kMillisecond;
    driver.add(seq);
  }
  int64_t most = INT64_MIN;
  while (driver.scheduler.has_work()) {
    driver.step();
    for (const control::SeqEvent& event : driver.events) {
      most = std::max(most, static_cast<int64_t>(driver.last().step) - deadlines[event.id]);
    }
  }
  return most;
}

TEST(Slo, NoOrderMissesItsDeadlinesByLess) {
  // Of requests of one length the earliest deadline first minimizes the worst lateness (Jackson 1955).
  bool better = false;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    const int64_t slo = latest(control::SchedulingKind::kSlo, seed);
    for (const auto other : {control::SchedulingKind::kFcfs, control::SchedulingKind::kSrpt,
                             control::SchedulingKind::kPriority}) {
      EXPECT_LE(slo, latest(other, seed));
      better = better || slo + 5 < latest(other, seed);
    }
  }
  EXPECT_TRUE(better);
}

TEST(Slo, WhoHasStartedComesBackFirst) {
  control::SchedulerConfig config = with_blocks(4);  // as much as a and b fill
  config.enable_prefix_caching = false;
  config.scheduling = control::SchedulingKind::kSlo;
  Driver driver(config);
  driver.add(a, text(7), 6);
  driver.add(b, text(6, 50), 6);
  while (driver.scheduler.stats().total_preemptions == 0) driver.step();
  control::SeqSpec late = Driver::spec(c, text(3, 60), 1);
  late.ttft_deadline = -1000 * kMillisecond;
  driver.add(late);
  do driver.step();
  while (driver.last().added.empty());
  EXPECT_EQ(driver.last().added.at(0).sampling.seed, b);
}

control::SeqSpec with_priority(SeqId id, int32_t priority, Nanos arrived) {
  control::SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(10 * id)), 2);
  seq.priority = priority;
  seq.arrived = arrived;
  return seq;
}

TEST(Priority, LowerComesFirstThenTheEarlier) {
  Driver driver(one_by_one(control::SchedulingKind::kPriority));
  driver.add(with_priority(a, 1, 0));
  driver.add(with_priority(b, 0, 10));
  driver.add(with_priority(c, -1, 20));
  driver.add(with_priority(d, 0, 5));
  EXPECT_THAT(order_of_ends(driver), ElementsAre(c, d, b, a));
}

/// An important one arrives with every step; how many come before the unimportant one.
size_t passed_by(Nanos aging) {
  control::SchedulerConfig config = one_by_one(control::SchedulingKind::kPriority);
  config.priority_aging = aging;
  Driver driver(config);
  driver.add(with_priority(0, 3, 0));
  size_t others = 0;
  for (SeqId id = 1; id < 200; ++id) {
    driver.add(with_priority(id, 0, static_cast<Nanos>(id) * kMillisecond));
    for (int step = 0; step < 2; ++step) {
      driver.step();
      for (const control::SeqEvent& event : driver.events) {
        if (!event.finish) continue;
        if (event.id == 0) return others;
        ++others;
      }
    }
  }
  return others;
}

TEST(Priority, AgingEndsStarvation) {
  EXPECT_EQ(passed_by(3'600'000 * kMillisecond), 199U);  // an hour a level: it waits for ever
  EXPECT_LE(passed_by(10 * kMillisecond), 32U);          // 3 levels of 10 ms each
}

/// Tokens served by tenant, prompt tokens once and generated ones twice, for as long as both have work.
std::map<uint64_t, int64_t> served_to_two(control::SchedulingKind scheduling, int64_t& largest_gap) {
  control::SchedulerConfig config = one_by_one(scheduling);
  config.max_num_seqs = 2;
  Driver driver(config);
  SeqId id = 0;
  const auto ask = [&](uint64_t tenant, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i, ++id) {
      control::SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(id)), 4);
      seq.tenant = tenant;
      driver.add(seq);
    }
  };
  ask(1, 40);  // a flood
  ask(2, 20);
  std::map<uint64_t, int64_t> served;
  std::map<uint64_t, uint32_t> left = {{1, 40}, {2, 20}};
  while (left[1] > 0 && left[2] > 0) {
    driver.step();
    for (const control::SeqEvent& event : driver.events) {
      const uint64_t tenant = event.id < 40 ? 1 : 2;
      served[tenant] += 2;
      if (!event.finish) continue;
      served[tenant] += 4;
      --left[tenant];
    }
    largest_gap = std::max(largest_gap, std::abs(served[1] - served[2]));
  }
  return served;
}

TEST(Fair, NoTenantGetsAheadByMoreThanWhatRuns) {
  int64_t fcfs_gap = 0;
  int64_t fair_gap = 0;
  served_to_two(control::SchedulingKind::kFcfs, fcfs_gap);
  served_to_two(control::SchedulingKind::kFair, fair_gap);
  // Two sequences of 4 + 2 * 4 each are in work at most (Sheng et al., theorem 4.4, doubles it).
  EXPECT_LE(fair_gap, 2 * 2 * 12);
  EXPECT_GT(fcfs_gap, 5 * fair_gap);
}

/// Tenants that always have work, each with requests of its own size: the largest gap in what they were
/// served.
int64_t largest_gap(control::SchedulingKind scheduling, uint64_t seed, int64_t& most_in_work) {
  control::SchedulerConfig config = one_by_one(scheduling);
  config.max_num_seqs = 3;
  config.enable_prefix_caching = false;
  Driver driver(config);
  SplitMix64 random(seed);
  uint32_t prompts[3] = {};
  uint32_t answers[3] = {};
  for (uint64_t tenant = 0; tenant < 3; ++tenant) {
    prompts[tenant] = 1 + static_cast<uint32_t>(random.below(20));
    answers[tenant] = 1 + static_cast<uint32_t>(random.below(20));
    most_in_work = std::max(most_in_work, int64_t{3} * (prompts[tenant] + 2 * answers[tenant]));
  }
  std::map<SeqId, uint64_t> tenants;
  const auto ask = [&](uint64_t tenant) {
    control::SeqSpec seq = Driver::spec(tenants.size(), text(prompts[tenant]), answers[tenant]);
    seq.tenant = tenant;
    tenants[seq.id] = tenant;
    driver.add(seq);
  };
  for (uint64_t tenant = 0; tenant < 3; ++tenant) {
    for (uint64_t i = 0; i < 3 + 3 * tenant; ++i) ask(tenant);
  }
  int64_t served[3] = {};
  int64_t gap = 0;
  for (int step = 0; step < 500; ++step) {
    driver.step();
    for (const control::SeqEvent& event : driver.events) {
      const uint64_t tenant = tenants[event.id];
      served[tenant] += 2 + (event.finish ? prompts[tenant] : 0);
      if (event.finish) ask(tenant);
    }
    const auto [least, most] = std::minmax_element(std::begin(served), std::end(served));
    gap = std::max(gap, *most - *least);
  }
  return gap;
}

TEST(Fair, TheGapDoesNotGrowWhateverTheTenantsAsk) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    int64_t most_in_work = 0;
    const int64_t gap = largest_gap(control::SchedulingKind::kFair, seed, most_in_work);
    EXPECT_LE(gap, 2 * most_in_work) << "seed " << seed;
  }
}

TEST(Fair, WhoComesBackHasSavedNothingUp) {
  Driver driver(one_by_one(control::SchedulingKind::kFair));
  for (SeqId id = 0; id < 10; ++id) {
    control::SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(id)), 4);
    seq.tenant = 1;
    driver.add(seq);
  }
  driver.steps(20);  // tenant 1 was served for a while
  for (SeqId id = 10; id < 20; ++id) {
    control::SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(id)), 4);
    seq.tenant = 2;
    driver.add(seq);
  }
  std::vector<SeqId> order = order_of_ends(driver);
  order.resize(6);
  EXPECT_GE(std::ranges::count_if(order, [](SeqId id) { return id < 10; }), 2);  // they take turns
}

TEST(Lpm, TheLongestCachedPrefixComesFirst) {
  Driver driver(one_by_one(control::SchedulingKind::kLpm));
  driver.add(a, text(16), 1);
  order_of_ends(driver);
  driver.add(b, text(12, 500), 1);
  driver.add(c, text(9), 1);   // two blocks of a's
  driver.add(d, text(20), 1);  // four
  EXPECT_THAT(order_of_ends(driver), ElementsAre(d, c, b));
}

TEST(Lpm, NobodyIsPassedForEver) {
  Driver driver(one_by_one(control::SchedulingKind::kLpm));
  driver.add(1000, text(16), 1);
  order_of_ends(driver);
  driver.add(0, text(12, 500), 1);
  uint32_t before = 0;
  bool came = false;
  for (SeqId id = 1; id < 100 && !came; ++id) {
    driver.add(id, text(16), 1);
    driver.step();
    for (const control::SeqEvent& event : driver.events) came = came || event.id == 0;
    if (!came) ++before;
  }
  EXPECT_TRUE(came);
  EXPECT_LE(before, 36U);
  EXPECT_GE(before, 30U);
}

}  // namespace
}  // namespace quire::test
