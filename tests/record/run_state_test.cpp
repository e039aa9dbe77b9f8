// What is read of a recorded run, against the scheduler that made it.
#include <algorithm>
#include <optional>

#include <gtest/gtest.h>

#include "record/follow_run.h"
#include "record/run_story.h"
#include "tests/record/random_run.h"
#include "tests/support/data.h"

namespace quire::record {
namespace {

std::filesystem::path log_of_states() {
  static const std::filesystem::path folder = test::temp_dir();
  return folder / "state.log";
}

/// After each step's results, before anything else: what the scheduler said of itself.
class CompareStates final : public RunListener {
 public:
  explicit CompareStates(const test::RandomRun& run) : run_(run) {}
  void before(const RunEvent& event, const RunState& state) override {
    if (awaits_ && is_input(event)) compare(state);
    awaits_ = awaits_ || std::holds_alternative<RunCommit>(event);
  }
  void planned(const RunState& state) override {
    const control::StepPlan& plan = run_.plans[state.step() - 1];
    ASSERT_EQ(state.planned().size(), plan.seqs.size());
    for (size_t i = 0; i < plan.seqs.size(); ++i) {
      const LiveSequence* seq = state.find(state.planned()[i]);
      ASSERT_NE(seq, nullptr);
      EXPECT_EQ(seq->next() - seq->planned, plan.seqs[i].first_position);
      EXPECT_EQ(seq->planned, plan.seqs[i].tokens.size());
      const bool samples = seq->pending > 0 && seq->next() + 1 == seq->total + seq->pending;
      EXPECT_EQ(samples, plan.seqs[i].rows != control::LogitRows::kNone);
      EXPECT_EQ(seq->pending > (samples ? 1U : 0U), plan.seqs[i].is_late());
    }
  }
  uint64_t compared() const { return commits_; }

 private:
  void compare(const RunState& state) {
    awaits_ = false;
    while (run_.plans[compared_].empty()) ++compared_;
    const control::StepStats& stats = run_.states[compared_++];
    ++commits_;
    EXPECT_GE(state.step(), stats.step);
    EXPECT_LT(state.step(), stats.step + run_.depth + 1);
    EXPECT_TRUE(run_.depth > 1 || state.step() == stats.step);
    EXPECT_EQ(state.running(), stats.running);
    EXPECT_EQ(state.waiting(), stats.waiting);
    EXPECT_EQ(state.blocks_held(), stats.blocks_referenced);
    EXPECT_EQ(state.config().num_host_blocks - state.host_blocks_free(), stats.host_blocks_used);
    uint64_t held = 0;
    for (const auto& [id, seq] : state.live()) held += seq.blocks;
    EXPECT_EQ(held, stats.blocks_referenced + stats.blocks_saved);
  }

  const test::RandomRun& run_;
  bool awaits_ = false;
  uint64_t compared_ = 0;  // steps so far
  uint64_t commits_ = 0;
};

TEST(RunState, IsWhatTheSchedulerWas) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    const test::RandomRun run = test::record_random_run(log_of_states(), seed);
    RunReader reader(log_of_states());
    CompareStates compare(run);
    follow_run(reader, compare);
    EXPECT_EQ(compare.compared(), run.commits);
  }
}

/// For whom a sequence gives way, by the cause, is who gets a token next, or who gives way itself.
class NeedyComesNext final : public RunListener {
 public:
  void before(const RunEvent& event, const RunState& state) override {
    if (const auto* cause = std::get_if<control::Cause>(&event);
        cause && cause->kind == control::CauseKind::kVictim) {
      EXPECT_NE(state.find(cause->other), nullptr);
      EXPECT_FALSE(cause_);
      cause_ = *cause;
    }
    const auto* decision = std::get_if<control::Decision>(&event);
    if (decision == nullptr) return;
    if (decision->kind == control::DecisionKind::kPreempt) {
      ASSERT_TRUE(cause_);
      EXPECT_EQ(cause_->seq, decision->seq);
      if (needy_) {
        EXPECT_EQ(cause_->other, *needy_);
      }
      if (cause_->other == decision->seq) {
        needy_.reset();
        ++themselves_;
      } else {
        needy_ = cause_->other;
        ++others_;
      }
      cause_.reset();
    } else if (decision->kind == control::DecisionKind::kChunk && needy_) {
      EXPECT_EQ(decision->seq, *needy_);
      needy_.reset();
    }
  }
  void planned(const RunState& /*state*/) override { EXPECT_FALSE(needy_); }
  uint64_t themselves_ = 0;
  uint64_t others_ = 0;

 private:
  std::optional<control::Cause> cause_;
  std::optional<SeqId> needy_;
};

TEST(RunState, KnowsForWhomOthersGiveWay) {
  NeedyComesNext check;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(seed);
    test::record_random_run(log_of_states(), seed);
    RunReader reader(log_of_states());
    follow_run(reader, check);
  }
  EXPECT_GT(check.others_, 200U);
  EXPECT_GT(check.themselves_, 20U);
}

/// All that wait by policy order do so behind one that waits for blocks.
class OneIsFirst final : public RunListener {
 public:
  void before(const RunEvent& /*event*/, const RunState& /*state*/) override {}
  void planned(const RunState& state) override {
    for (const auto& [id, seq] : state.live()) {
      if (seq.running) continue;
      EXPECT_NE(seq.waits, control::WaitReason::kNone);
      if (seq.waits == control::WaitReason::kBlocks) {
        EXPECT_EQ(state.first_in_line(), &seq);
      }
      if (seq.waits != control::WaitReason::kOrder) continue;
      ASSERT_NE(state.first_in_line(), nullptr);
      EXPECT_NE(state.first_in_line(), &seq);
      ++behind_;
    }
  }
  uint64_t behind_ = 0;
};

TEST(RunState, KnowsBehindWhomOthersWait) {
  OneIsFirst check;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    test::record_random_run(log_of_states(), seed);
    RunReader reader(log_of_states());
    follow_run(reader, check);
  }
  EXPECT_GT(check.behind_, 1000U);
}

}  // namespace
}  // namespace quire::record
