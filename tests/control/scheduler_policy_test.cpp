// Batching, victims, ways of preempting and the decision log. Each policy visibly differs from the default
// and keeps what it promises; scheduling_policy_test.cpp has those of who comes in first.
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

/// Steps until all have ended; the sequences in the order of their ends.
std::vector<SeqId> ends(Driver& driver) {
  std::vector<SeqId> order;
  while (driver.scheduler.has_work()) {
    driver.step();
    for (const control::SeqEvent& event : driver.events) {
      if (event.finish) order.push_back(event.id);
    }
  }
  return order;
}

// ---- batching ----

TEST(StaticBatching, NobodyComesInUntilAllHaveEnded) {
  control::SchedulerConfig config = small();
  config.max_num_seqs = 2;
  config.batching = control::BatchingKind::kStatic;
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
  control::SchedulerConfig config = small();
  config.batching = control::BatchingKind::kStatic;
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
control::SchedulerConfig tight(control::VictimKind victim,
                               control::PreemptionKind preemption = control::PreemptionKind::kRecompute) {
  control::SchedulerConfig config = with_blocks(4);
  config.enable_prefix_caching = false;
  config.victim = victim;
  config.preemption = preemption;
  config.num_host_blocks = 4;
  return config;
}

std::vector<SeqId> preempted(const control::SchedulerConfig& config, int32_t priority_of_a) {
  Driver driver(config);
  control::SeqSpec first = Driver::spec(a, text(7), 6);
  first.priority = priority_of_a;
  driver.add(first);
  driver.add(b, text(6, 50), 6);
  std::vector<SeqId> out;
  class Sink final : public control::DecisionSink {
   public:
    explicit Sink(std::vector<SeqId>& out) : out_(out) {}
    void take(const control::Decision& decision) override {
      if (decision.kind == control::DecisionKind::kPreempt) out_.push_back(decision.seq);
    }

   private:
    std::vector<SeqId>& out_;
  } sink(out);
  driver.scheduler.listen(&sink);
  ends(driver);
  return out;
}

TEST(Victims, ByPolicy) {
  EXPECT_THAT(preempted(tight(control::VictimKind::kLastAdmitted), 5), ElementsAre(b));
  EXPECT_THAT(preempted(tight(control::VictimKind::kLowestPriority), 5).at(0), a);
  EXPECT_THAT(preempted(tight(control::VictimKind::kLowestPriority), -5), ElementsAre(b));
  EXPECT_THAT(preempted(tight(control::VictimKind::kLeastProgress), 0), ElementsAre(b));
}

/// What a and b lose; a has less to lose, b was admitted later. At 8 tokens of a there is no sixth block.
uint64_t computed_again(control::VictimKind victim, SeqId& whose) {
  control::SchedulerConfig config = tight(victim);
  config.num_blocks = 5;
  Driver driver(config);
  driver.add(a, text(4), 8);
  driver.add(b, text(7, 50), 3 + 4);
  uint64_t tokens = 0;
  while (driver.scheduler.has_work()) {
    driver.step();
    if (driver.scheduler.stats().preempted > 0) {
      whose = driver.last().seqs.at(0).slot == 0 ? b : a;
    }
    tokens += driver.scheduler.stats().prefill_tokens;
  }
  return tokens - 4 - 7;
}

TEST(Victims, LeastProgressLosesTheLeast) {
  SeqId whose = c;
  const uint64_t last = computed_again(control::VictimKind::kLastAdmitted, whose);
  EXPECT_EQ(whose, b);
  const uint64_t least = computed_again(control::VictimKind::kLeastProgress, whose);
  EXPECT_EQ(whose, a);
  EXPECT_LT(least, last);
}

TEST(Swap, WhatWasMovedOutIsMovedBackAndNotComputedAgain) {
  Driver driver(tight(control::VictimKind::kLastAdmitted, control::PreemptionKind::kSwap));
  driver.add(a, text(7), 6);
  driver.add(b, text(6, 50), 6);
  uint32_t out = 0;
  uint32_t in = 0;
  uint32_t prefill = 0;
  while (driver.scheduler.has_work()) {
    driver.step();
    const control::StepStats& stats = driver.scheduler.stats();
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
  control::SchedulerConfig config = tight(control::VictimKind::kLastAdmitted, control::PreemptionKind::kSwap);
  config.num_host_blocks = 1;
  Driver driver(config);
  driver.add(a, text(7), 6);
  driver.add(b, text(6, 50), 6);
  EXPECT_THAT(ends(driver), ElementsAre(a, b));
  EXPECT_GT(driver.scheduler.stats().total_preemptions, 0U);
}

TEST(Swap, AutoTakesTheCheaperWay) {
  for (const bool moving_is_cheap : {false, true}) {
    control::SchedulerConfig config =
        tight(control::VictimKind::kLastAdmitted, control::PreemptionKind::kAuto);
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
  Driver driver(tight(control::VictimKind::kLastAdmitted, control::PreemptionKind::kSwap));
  driver.add(a, text(7), 6);
  driver.add(b, text(6, 50), 6);
  while (driver.scheduler.stats().host_blocks_used == 0) driver.step();
  driver.scheduler.abort(b);
  EXPECT_EQ(driver.scheduler.stats().host_blocks_used, 0U);
  EXPECT_EQ(driver.scheduler.check_invariants(), "");
}

TEST(Protection, EndsTheStarvationOfAVictim) {
  // a is the least important, and important ones keep coming that need its blocks.
  control::SchedulerConfig config = tight(control::VictimKind::kLowestPriority);
  config.num_blocks = 12;
  config.max_waiting = 1000;
  Driver driver(config);
  control::SeqSpec victim = Driver::spec(a, text(4), 34);
  victim.priority = 9;
  driver.add(victim);
  uint32_t preemptions = 0;
  bool ended = false;
  class Count final : public control::DecisionSink {
   public:
    explicit Count(uint32_t& count) : count_(count) {}
    void take(const control::Decision& decision) override {
      count_ += decision.kind == control::DecisionKind::kPreempt && decision.seq == a ? 1 : 0;
    }

   private:
    uint32_t& count_;
  } count(preemptions);
  driver.scheduler.listen(&count);
  for (SeqId id = 1; id < 400 && !ended; ++id) {
    driver.add(id, text(4, static_cast<TokenId>(10 * id)), 14);
    for (int i = 0; i < 2 && !ended; ++i) {
      driver.step();
      for (const control::SeqEvent& event : driver.events) ended = ended || (event.id == a && event.finish);
    }
  }
  EXPECT_TRUE(ended);
  EXPECT_EQ(preemptions, 8U);
}

// ---- the log ----

class Lines final : public control::DecisionSink {
 public:
  void take(const control::Decision& d) override {
    lines.push_back(
        fmt::format("{} {} {} {}", record::kDecisionNames[static_cast<size_t>(d.kind)], d.seq, d.a, d.b));
  }
  std::vector<std::string> lines;
};

TEST(Decisions, TellTheStoryOfASequence) {
  control::SchedulerConfig config = small();
  config.max_num_seqs = 1;
  Driver driver(config);
  Lines log;
  driver.scheduler.listen(&log);
  driver.add(a, text(5), 2);
  driver.add(b, text(4, 50), 1);
  ends(driver);
  const auto slots = static_cast<uint32_t>(control::WaitReason::kSlots);
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
