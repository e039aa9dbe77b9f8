// Policies: each visibly differs from the default, and keeps what it promises.
#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "record/run_record.h"
#include "tests/control/driver.h"

namespace quire::test {
namespace {

using testing::ElementsAre;

constexpr Nanos kMs = 1'000'000;

/// One sequence at a time, so that the order of ends is the order of admissions.
SchedulerConfig one_by_one(SchedulingKind scheduling) {
  SchedulerConfig config = small();
  config.max_num_seqs = 1;
  config.max_waiting = 1000;
  config.scheduling = scheduling;
  return config;
}

/// Steps until all have ended; the sequences in the order of their ends.
std::vector<SeqId> ends(Driver& driver) {
  std::vector<SeqId> order;
  while (driver.scheduler.has_work()) {
    driver.step();
    for (const SeqEvent& event : driver.events) {
      if (event.finish) order.push_back(event.id);
    }
  }
  return order;
}

// ---- who comes in first ----

/// The sum over all of the step in which each ended.
uint64_t sum_of_completions(SchedulingKind scheduling) {
  Driver driver(one_by_one(scheduling));
  driver.add(a, text(30), 20);
  driver.add(b, text(4, 50), 2);
  driver.add(c, text(4, 60), 2);
  uint64_t sum = 0;
  while (driver.scheduler.has_work()) {
    driver.step();
    for (const SeqEvent& event : driver.events) sum += event.finish ? driver.last().step : 0;
  }
  return sum;
}

TEST(Srpt, TheShortestComesFirst) {
  Driver driver(one_by_one(SchedulingKind::kSrpt));
  driver.add(a, text(30), 20);
  driver.add(b, text(4, 50), 5);
  driver.add(c, text(4, 60), 2);
  EXPECT_THAT(ends(driver), ElementsAre(c, b, a));
}

TEST(Srpt, EndsThemSoonerOnTheWhole) {
  EXPECT_LT(sum_of_completions(SchedulingKind::kSrpt), sum_of_completions(SchedulingKind::kFcfs));
}

TEST(Srpt, AGivenLengthCountsForMoreThanTheBound) {
  Driver driver(one_by_one(SchedulingKind::kSrpt));
  SeqSpec long_bound = Driver::spec(a, text(4), 20);
  long_bound.expected_tokens = 2;
  driver.add(Driver::spec(b, text(4, 50), 5));
  driver.add(long_bound);
  driver.plan();
  EXPECT_EQ(driver.last().added.at(0).sampling.seed, a);
}

TEST(Srpt, LearnsHowLongAnswersAre) {
  Driver driver(one_by_one(SchedulingKind::kSrpt));
  for (SeqId id = 10; id < 14; ++id) {  // all end by a stop token after two tokens
    SeqSpec seq = Driver::spec(id, text(4), 20);
    seq.stop_tokens = {7};
    driver.told[id] = {5, 7};
    driver.add(seq);
  }
  ends(driver);
  // Both are expected to be short, so their prompts tell them apart.
  driver.add(a, text(20), 10);
  driver.add(b, text(4, 50), 20);
  driver.plan();
  EXPECT_EQ(driver.last().added.at(0).sampling.seed, b);
}

TEST(Slo, TheLeastSlackComesFirst) {
  Driver driver(one_by_one(SchedulingKind::kSlo));
  SeqSpec late = Driver::spec(a, text(4), 2);
  late.ttft_deadline = 900 * kMs;
  SeqSpec soon = Driver::spec(b, text(4, 50), 2);
  soon.arrived = 100 * kMs;
  soon.ttft_deadline = 300 * kMs;
  SeqSpec lengthy = Driver::spec(c, text(40, 60), 2);  // the same deadline, but more to do until then
  lengthy.arrived = 100 * kMs;
  lengthy.ttft_deadline = 300 * kMs;
  driver.add(late);
  driver.add(soon);
  driver.add(lengthy);
  EXPECT_THAT(ends(driver), ElementsAre(c, b, a));
}

SeqSpec with_priority(SeqId id, int32_t priority, Nanos arrived) {
  SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(10 * id)), 2);
  seq.priority = priority;
  seq.arrived = arrived;
  return seq;
}

TEST(Priority, LowerComesFirstThenTheEarlier) {
  Driver driver(one_by_one(SchedulingKind::kPriority));
  driver.add(with_priority(a, 1, 0));
  driver.add(with_priority(b, 0, 10));
  driver.add(with_priority(c, -1, 20));
  driver.add(with_priority(d, 0, 5));
  EXPECT_THAT(ends(driver), ElementsAre(c, d, b, a));
}

/// An important one arrives with every step; how many come before the unimportant one.
size_t passed_by(Nanos aging) {
  SchedulerConfig config = one_by_one(SchedulingKind::kPriority);
  config.priority_aging = aging;
  Driver driver(config);
  driver.add(with_priority(0, 3, 0));
  size_t others = 0;
  for (SeqId id = 1; id < 200; ++id) {
    driver.add(with_priority(id, 0, static_cast<Nanos>(id) * kMs));
    for (int step = 0; step < 2; ++step) {
      driver.step();
      for (const SeqEvent& event : driver.events) {
        if (!event.finish) continue;
        if (event.id == 0) return others;
        ++others;
      }
    }
  }
  return others;
}

TEST(Priority, AgingEndsStarvation) {
  EXPECT_EQ(passed_by(3'600'000 * kMs), 199U);  // an hour a level: it waits for ever
  EXPECT_LE(passed_by(10 * kMs), 32U);          // 3 levels of 10 ms each
}

/// Tokens served by tenant, prompt tokens once and generated ones twice, for as long as both have work.
std::map<uint64_t, int64_t> served_to_two(SchedulingKind scheduling, int64_t& largest_gap) {
  SchedulerConfig config = one_by_one(scheduling);
  config.max_num_seqs = 2;
  Driver driver(config);
  SeqId id = 0;
  const auto ask = [&](uint64_t tenant, uint32_t count) {
    for (uint32_t i = 0; i < count; ++i, ++id) {
      SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(id)), 4);
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
    for (const SeqEvent& event : driver.events) {
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
  served_to_two(SchedulingKind::kFcfs, fcfs_gap);
  served_to_two(SchedulingKind::kFair, fair_gap);
  // Two sequences of 4 + 2 * 4 each are in work at most (Sheng et al., theorem 4.4, doubles it).
  EXPECT_LE(fair_gap, 2 * 2 * 12);
  EXPECT_GT(fcfs_gap, 5 * fair_gap);
}

TEST(Fair, WhoComesBackHasSavedNothingUp) {
  Driver driver(one_by_one(SchedulingKind::kFair));
  for (SeqId id = 0; id < 10; ++id) {
    SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(id)), 4);
    seq.tenant = 1;
    driver.add(seq);
  }
  driver.steps(20);  // tenant 1 was served for a while
  for (SeqId id = 10; id < 20; ++id) {
    SeqSpec seq = Driver::spec(id, text(4, static_cast<TokenId>(id)), 4);
    seq.tenant = 2;
    driver.add(seq);
  }
  std::vector<SeqId> order = ends(driver);
  order.resize(6);
  EXPECT_GE(std::ranges::count_if(order, [](SeqId id) { return id < 10; }), 2);  // they take turns
}

TEST(Lpm, TheLongestCachedPrefixComesFirst) {
  Driver driver(one_by_one(SchedulingKind::kLpm));
  driver.add(a, text(16), 1);
  ends(driver);
  driver.add(b, text(12, 500), 1);
  driver.add(c, text(9), 1);   // two blocks of a's
  driver.add(d, text(20), 1);  // four
  EXPECT_THAT(ends(driver), ElementsAre(d, c, b));
}

TEST(Lpm, NobodyIsPassedForEver) {
  Driver driver(one_by_one(SchedulingKind::kLpm));
  driver.add(1000, text(16), 1);
  ends(driver);
  driver.add(0, text(12, 500), 1);
  uint32_t before = 0;
  bool came = false;
  for (SeqId id = 1; id < 100 && !came; ++id) {
    driver.add(id, text(16), 1);
    driver.step();
    for (const SeqEvent& event : driver.events) came = came || event.id == 0;
    if (!came) ++before;
  }
  EXPECT_TRUE(came);
  EXPECT_LE(before, 36U);
  EXPECT_GE(before, 30U);
}

// ---- batching ----

TEST(StaticBatching, NobodyComesInUntilAllHaveEnded) {
  SchedulerConfig config = small();
  config.max_num_seqs = 2;
  config.batching = BatchingKind::kStatic;
  Driver driver(config);
  driver.add(a, text(4), 1);
  driver.add(b, text(4, 50), 4);
  driver.add(c, text(4, 60), 1);
  EXPECT_EQ(driver.step(), "+a +b a:0+4! b:0+4!");
  EXPECT_EQ(driver.step(), "-a b:4+1!");  // continuous batching has c in a's place
  EXPECT_EQ(driver.step(), "b:5+1!");
  EXPECT_EQ(driver.step(), "b:6+1!");
  EXPECT_EQ(driver.step(), "-b +c c:0+4!");
}

TEST(StaticBatching, ABatchMayTakeSeveralStepsToFill) {
  SchedulerConfig config = small();
  config.batching = BatchingKind::kStatic;
  Driver driver(config);
  driver.add(a, text(6), 3);
  driver.add(b, text(6, 50), 3);
  driver.add(c, text(4, 60), 1);
  EXPECT_EQ(driver.step(), "+a +b a:0+6! b:0+2");
  EXPECT_EQ(driver.step(), "+c a:6+1! b:2+4! c:0+3");
  driver.add(d, text(4, 70), 1);
  EXPECT_EQ(driver.step(), "a:7+1! b:6+1! c:3+1!");
}

// ---- who gives way, and how ----

/// a and b fill a pool of four blocks of four tokens, and b came later.
SchedulerConfig tight(VictimKind victim, PreemptionKind preemption = PreemptionKind::kRecompute) {
  SchedulerConfig config = with_blocks(4);
  config.enable_prefix_caching = false;
  config.victim = victim;
  config.preemption = preemption;
  config.num_host_blocks = 4;
  return config;
}

std::vector<SeqId> preempted(const SchedulerConfig& config, int32_t priority_of_a) {
  Driver driver(config);
  SeqSpec first = Driver::spec(a, text(7), 6);
  first.priority = priority_of_a;
  driver.add(first);
  driver.add(b, text(6, 50), 6);
  std::vector<SeqId> out;
  class Sink final : public DecisionSink {
   public:
    explicit Sink(std::vector<SeqId>& out) : out_(out) {}
    void take(const Decision& decision) override {
      if (decision.kind == DecisionKind::kPreempt) out_.push_back(decision.seq);
    }

   private:
    std::vector<SeqId>& out_;
  } sink(out);
  driver.scheduler.listen(&sink);
  ends(driver);
  return out;
}

TEST(Victims, ByPolicy) {
  EXPECT_THAT(preempted(tight(VictimKind::kLastAdmitted), 5), ElementsAre(b));
  EXPECT_THAT(preempted(tight(VictimKind::kLowestPriority), 5).at(0), a);
  EXPECT_THAT(preempted(tight(VictimKind::kLowestPriority), -5), ElementsAre(b));
  EXPECT_THAT(preempted(tight(VictimKind::kLeastProgress), 0), ElementsAre(b));
}

TEST(Swap, WhatWasMovedOutIsMovedBackAndNotComputedAgain) {
  Driver driver(tight(VictimKind::kLastAdmitted, PreemptionKind::kSwap));
  driver.add(a, text(7), 6);
  driver.add(b, text(6, 50), 6);
  uint32_t out = 0;
  uint32_t in = 0;
  uint32_t prefill = 0;
  while (driver.scheduler.has_work()) {
    driver.step();
    const StepStats& stats = driver.scheduler.stats();
    out += stats.swapped_out;
    in += stats.swapped_in;
    prefill += stats.prefill_tokens;
    if (!driver.last().moves_out.empty()) {
      EXPECT_EQ(stats.host_blocks_used, stats.swapped_out);
    }
  }
  EXPECT_GT(out, 0U);
  EXPECT_EQ(out, in);
  EXPECT_EQ(prefill, 7U + 6U);
  EXPECT_EQ(driver.scheduler.stats().host_blocks_used, 0U);
}

TEST(Swap, AHostPoolThatIsFullMeansComputingAgain) {
  SchedulerConfig config = tight(VictimKind::kLastAdmitted, PreemptionKind::kSwap);
  config.num_host_blocks = 1;
  Driver driver(config);
  driver.add(a, text(7), 6);
  driver.add(b, text(6, 50), 6);
  EXPECT_THAT(ends(driver), ElementsAre(a, b));
  EXPECT_GT(driver.scheduler.stats().total_preemptions, 0U);
}

TEST(Swap, AutoTakesTheCheaperWay) {
  for (const bool moving_is_cheap : {false, true}) {
    SchedulerConfig config = tight(VictimKind::kLastAdmitted, PreemptionKind::kAuto);
    config.costs.prefill_token = 1000;
    config.costs.swap_block = moving_is_cheap ? 10 : 1'000'000;
    Driver driver(config);
    driver.add(a, text(7), 6);
    driver.add(b, text(6, 50), 6);
    uint32_t out = 0;
    while (driver.scheduler.has_work()) {
      driver.step();
      out += driver.scheduler.stats().swapped_out;
    }
    EXPECT_EQ(out > 0, moving_is_cheap);
    EXPECT_GT(driver.scheduler.stats().total_preemptions, 0U);
  }
}

TEST(Swap, AnAbortedSequenceGivesItsHostBlocksBack) {
  Driver driver(tight(VictimKind::kLastAdmitted, PreemptionKind::kSwap));
  driver.add(a, text(7), 6);
  driver.add(b, text(6, 50), 6);
  while (driver.scheduler.stats().host_blocks_used == 0) driver.step();
  driver.scheduler.abort(b);
  EXPECT_EQ(driver.scheduler.stats().host_blocks_used, 0U);
  EXPECT_EQ(driver.scheduler.check_invariants(), "");
}

TEST(Protection, EndsTheStarvationOfAVictim) {
  // a is the least important, and important ones keep coming that need its blocks.
  SchedulerConfig config = tight(VictimKind::kLowestPriority);
  config.max_waiting = 1000;
  Driver driver(config);
  SeqSpec victim = Driver::spec(a, text(4), 9);
  victim.priority = 9;
  driver.add(victim);
  uint32_t preemptions = 0;
  bool ended = false;
  class Count final : public DecisionSink {
   public:
    explicit Count(uint32_t& count) : count_(count) {}
    void take(const Decision& decision) override {
      count_ += decision.kind == DecisionKind::kPreempt && decision.seq == a ? 1 : 0;
    }

   private:
    uint32_t& count_;
  } count(preemptions);
  driver.scheduler.listen(&count);
  for (SeqId id = 1; id < 400 && !ended; ++id) {
    driver.add(id, text(4, static_cast<TokenId>(10 * id)), 9);
    for (int i = 0; i < 4 && !ended; ++i) {
      driver.step();
      for (const SeqEvent& event : driver.events) ended = ended || (event.id == a && event.finish);
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_LE(preemptions, 8U);
}

// ---- the log ----

class Lines final : public DecisionSink {
 public:
  void take(const Decision& d) override {
    lines.push_back(fmt::format("{} {} {} {}", kDecisionNames[static_cast<size_t>(d.kind)], d.seq, d.a, d.b));
  }
  std::vector<std::string> lines;
};

TEST(Decisions, TellTheStoryOfASequence) {
  SchedulerConfig config = small();
  config.max_num_seqs = 1;
  Driver driver(config);
  Lines log;
  driver.scheduler.listen(&log);
  driver.add(a, text(5), 2);
  driver.add(b, text(4, 50), 1);
  ends(driver);
  const auto slots = static_cast<uint32_t>(WaitReason::kSlots);
  EXPECT_THAT(log.lines, ElementsAre("add 0 5 2", "add 1 4 1", "admit 0 0 0", "chunk 0 0 5", "allocate 0 0 0",
                                     "allocate 0 1 0", fmt::format("skip 1 {} 0", slots), "chunk 0 5 1",
                                     "finish 0 1 0", "release 0 1 0", "release 0 0 0", "admit 1 0 0",
                                     "chunk 1 0 4", "allocate 1 1 0", "finish 1 1 0", "release 1 1 0"));
}

TEST(Decisions, TheSameCallsGiveTheSameDigest) {
  const auto digest = [](uint32_t num_blocks, bool listen) {
    Driver driver(with_blocks(num_blocks));
    Lines log;
    if (listen) driver.scheduler.listen(&log);
    driver.add(a, text(7), 6);
    driver.add(b, text(6, 50), 6);
    ends(driver);
    return driver.scheduler.digest();
  };
  EXPECT_EQ(digest(4, false), digest(4, true));
  EXPECT_NE(digest(4, false), digest(16, false));
}

}  // namespace
}  // namespace quire::test
