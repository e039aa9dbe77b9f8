#pragma once

#include <deque>
#include <map>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "control/scheduler.h"

namespace quire::test {

inline constexpr SeqId a = 0, b = 1, c = 2, d = 3;

/// Tokens first, first + 1, ...
inline std::vector<TokenId> text(uint32_t length, TokenId first = 0) {
  std::vector<TokenId> tokens(length);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

/// A scheduler with an executor that samples what it is told, else 1000, 1001, ... by sequence.
class Driver {
 public:
  explicit Driver(const control::SchedulerConfig& config) : scheduler(config) {}

  static control::SeqSpec spec(SeqId id, std::vector<TokenId> prompt, uint32_t max_tokens) {
    control::SeqSpec made;
    made.id = id;
    made.prompt = std::move(prompt);
    made.max_tokens = max_tokens;
    made.sampling.seed = id;  // how the executor knows it
    return made;
  }
  void add(control::SeqSpec seq) {
    const auto added = scheduler.add(std::move(seq));
    ASSERT_TRUE(added) << added.error().message;
  }
  void add(SeqId id, std::vector<TokenId> prompt, uint32_t max_tokens) {
    add(spec(id, std::move(prompt), max_tokens));
  }
  void fork(SeqId id, SeqId parent, std::vector<TokenId> prompt, uint32_t max_tokens) {
    control::SeqSpec made = spec(id, std::move(prompt), max_tokens);
    made.fork_of = parent;
    add(std::move(made));
  }

  /// The plan in short: "-a" slot taken back, "+b" slot given, "b:0+4" computes 4 tokens from position 0 on,
  /// "!" and samples.
  std::string plan() {
    plan_ = scheduler.plan();
    EXPECT_EQ(scheduler.check_invariants(), "");
    std::string out;
    for (const SlotId slot : plan_.removed) out += fmt::format("-{} ", name(slot));
    for (const control::NewSeq& added : plan_.added) {
      by_slot_[added.slot] = added.sampling.seed;
      out += fmt::format("+{} ", name(added.slot));
    }
    for (const control::SeqStep& seq : plan_.seqs) {
      out += fmt::format("{}:{}+{}{} ", name(seq.slot), seq.first_position, seq.tokens.size(),
                         seq.rows == control::LogitRows::kLast ? "!" : "");
    }
    if (!out.empty()) out.pop_back();
    return out;
  }
  control::StepResult execute() {
    control::StepResult result;
    for (const control::SeqStep& seq : plan_.seqs) {
      control::SeqResult& got = result.seqs.emplace_back();
      if (seq.rows == control::LogitRows::kNone) continue;
      auto& wanted = told[by_slot_.at(seq.slot)];
      SampledToken& sampled = got.token.emplace();
      sampled.token = 1000 + static_cast<TokenId>(by_slot_.at(seq.slot));
      if (wanted.empty()) continue;
      sampled.token = wanted.front();
      wanted.pop_front();
    }
    return result;
  }
  void commit(control::StepResult result) {
    events = scheduler.commit(plan_, std::move(result));
    EXPECT_EQ(scheduler.check_invariants(), "");
  }
  /// plan, execute, commit.
  std::string step() {
    std::string out = plan();
    events.clear();
    if (!plan_.empty()) commit(execute());
    return out;
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }

  const control::StepPlan& last() const { return plan_; }

  control::Scheduler scheduler;
  std::map<SeqId, std::deque<TokenId>> told;
  std::vector<control::SeqEvent> events;  // of the last commit

 private:
  char name(SlotId slot) const { return static_cast<char>('a' + by_slot_.at(slot)); }

  control::StepPlan plan_;
  std::map<SlotId, SeqId> by_slot_;
};

/// 16 blocks of 4 tokens, 4 slots, a budget of 8, no watermark.
inline control::SchedulerConfig small() {
  control::SchedulerConfig config;
  config.num_blocks = 16;
  config.block_size = 4;
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 8;
  config.max_model_len = 64;
  config.max_waiting = 4;
  config.watermark_bp = 0;
  return config;
}

inline control::SchedulerConfig with_blocks(uint32_t num_blocks, uint32_t budget = 64) {
  control::SchedulerConfig config = small();
  config.num_blocks = num_blocks;
  config.max_num_batched_tokens = budget;
  return config;
}

}  // namespace quire::test
