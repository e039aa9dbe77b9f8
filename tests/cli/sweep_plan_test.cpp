#include "cli/sweep_plan.h"

#include <algorithm>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"

namespace quire::cli {
namespace {

using testing::HasSubstr;

/// A machine that computes 2,000 prompt tokens a second.
control::SchedulerConfig config_of(uint32_t blocks, uint32_t longest) {
  control::SchedulerConfig config;
  config.num_blocks = blocks;
  config.max_model_len = longest;
  config.max_num_seqs = 32;
  config.max_num_batched_tokens = 512;
  config.preemption = control::PreemptionKind::kSwap;
  config.num_host_blocks = blocks;
  config.costs = {.prefill_token = 500'000, .decode_token = 2'000'000, .swap_block = 100'000};
  return config;
}

uint32_t most(const SweepPlan& plan, uint32_t SweepPiece::*of) {
  uint32_t out = 0;
  for (const SweepPiece& piece : plan.pieces) {
    if (!piece.swaps) out = std::max(out, piece.*of);
  }
  return out;
}
size_t swaps_of(const SweepPlan& plan) {
  return static_cast<size_t>(std::ranges::count_if(plan.pieces, &SweepPiece::swaps));
}
std::string notes_of(const SweepPlan& plan) {
  std::string out;
  for (const std::string& note : plan.notes) out += note + "\n";
  return out;
}
std::string refusal(const control::SchedulerConfig& config) {
  try {
    plan_sweep(config, 1000, true);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(SweepPlan, CoversAllWhereThereIsRoom) {
  const SweepPlan plan = plan_sweep(config_of(4096, 2048), 1000, true);
  EXPECT_EQ(most(plan, &SweepPiece::decoding), 32U);
  EXPECT_EQ(most(plan, &SweepPiece::context), 2035U);
  EXPECT_EQ(most(plan, &SweepPiece::chunk), 2046U);
  EXPECT_GT(plan.round_seconds, 1);
  // 32 sequences of 2,048 tokens are as many as the pool holds: they cannot grow beyond it.
  EXPECT_EQ(swaps_of(plan), 0U);
  EXPECT_THAT(notes_of(plan), HasSubstr("moving a block costs is not measured"));
  EXPECT_THAT(notes_of(plan), HasSubstr("fewer --num-blocks"));
}

/// Of the pieces with at least `context` tokens, the most sequences for one prompt.
double most_sharing(const SweepPlan& plan, uint32_t context) {
  double out = 0;
  for (const SweepPiece& piece : plan.pieces) {
    if (piece.decoding > 0 && piece.context >= context) {
      out = std::max(out, static_cast<double>(piece.decoding) / piece.prompts);
    }
  }
  return out;
}

TEST(SweepPlan, GivesSequencesPromptsOfTheirOwnWhereThereIsRoomAndTime) {
  const SweepPlan own = plan_sweep(config_of(4096, 512), 1000, true);
  EXPECT_EQ(most_sharing(own, 16), 1);
  EXPECT_THAT(notes_of(own), testing::Not(HasSubstr("sequences share")));
  // Four rounds of that would take longer.
  const SweepPlan hasty = plan_sweep(config_of(4096, 512), own.round_seconds * 3.6, true);
  EXPECT_LE(hasty.round_seconds, own.round_seconds * 0.9);
  EXPECT_GT(most_sharing(hasty, 499), 1);
  EXPECT_THAT(notes_of(hasty), HasSubstr("32 sequences share"));
  const SweepPlan small = plan_sweep(config_of(600, 512), 1000, true);
  EXPECT_GT(most_sharing(small, 499), 1);
  EXPECT_LT(most_sharing(small, 499), 3);
  EXPECT_EQ(most_sharing(small, 128), most_sharing(small, 499)) << "others have room";
  EXPECT_EQ(most(small, &SweepPiece::context), 499U);
}

TEST(SweepPlan, FillsAPoolThatItCanFill) {
  const SweepPlan plan = plan_sweep(config_of(300, 2048), 1000, true);
  ASSERT_GT(swaps_of(plan), 1U);
  for (const SweepPiece& piece : plan.pieces) {
    if (!piece.swaps) continue;
    EXPECT_GT(piece.decoding, 1U);
    EXPECT_LE(piece.context + piece.steps, 2048U);
    EXPECT_LE(piece.decoding * ((piece.context + 15) / 16), 300U) << "all are admitted";
    EXPECT_GT(piece.decoding * ((piece.context + piece.steps + 15) / 16), 300U) << "and grow beyond it";
  }
  EXPECT_THAT(plan.summary, HasSubstr("blocks moved to the host and back"));
}

TEST(SweepPlan, SaysWhySwapsAreNotMeasured) {
  control::SchedulerConfig config = config_of(300, 2048);
  config.num_host_blocks = 2;
  EXPECT_THAT(notes_of(plan_sweep(config, 1000, true)), HasSubstr("more --swap-space"));
  config.num_host_blocks = 0;
  config.preemption = control::PreemptionKind::kRecompute;
  EXPECT_THAT(notes_of(plan_sweep(config, 1000, true)), HasSubstr("--preemption-mode recompute"));
}

TEST(SweepPlan, TellsWhatAPoolIsTooSmallFor) {
  const SweepPlan plan = plan_sweep(config_of(140, 2048), 1000, true);
  EXPECT_EQ(most(plan, &SweepPiece::decoding), 32U);
  EXPECT_EQ(most(plan, &SweepPiece::context), 2035U) << "of one sequence alone";
  EXPECT_THAT(notes_of(plan), HasSubstr("tokens before, not 2,035: the pool has 140 blocks"));
  const SweepPlan few = plan_sweep(config_of(40, 512), 1000, true);
  EXPECT_LT(most(few, &SweepPiece::decoding), 32U);
  EXPECT_THAT(notes_of(few), HasSubstr("sequences decode at once"));
}

TEST(SweepPlan, ShortensSequencesThatTakeTooLong) {
  const SweepPlan whole = plan_sweep(config_of(20'000, 8192), 1, false);  // prompts are shared: it is short
  const double seconds = whole.round_seconds * 0.7;
  const SweepPlan shorter = plan_sweep(config_of(20'000, 8192), seconds, true);
  EXPECT_LT(shorter.round_seconds, whole.round_seconds);
  EXPECT_LT(most(shorter, &SweepPiece::chunk), 8190U);
  EXPECT_THAT(notes_of(shorter), HasSubstr("not 8,192"));
  EXPECT_THAT(notes_of(shorter), HasSubstr("--max-model-len 8192 measures them"));
  const SweepPlan given = plan_sweep(config_of(20'000, 8192), seconds, false);
  EXPECT_EQ(most(given, &SweepPiece::chunk), 8190U) << "the user said so";
  EXPECT_THAT(notes_of(given), HasSubstr("longer than --seconds"));
}

TEST(SweepPlan, TakesNoMoreThanTheUsualLengthUnlessTold) {
  const SweepPlan plan = plan_sweep(config_of(40'000, 131'072), 1e6, true);
  EXPECT_EQ(most(plan, &SweepPiece::chunk), kUsualLongest - 2);
  EXPECT_THAT(notes_of(plan), HasSubstr("not 131,072"));
}

TEST(SweepPlan, RefusesWhatCannotBeMeasured) {
  EXPECT_THAT(refusal(config_of(4096, kLeastLength - 1)), HasSubstr("63 tokens are too short to measure"));
  EXPECT_THAT(refusal(config_of(2, 64)), HasSubstr("a pool of 2 blocks is too small"));
  EXPECT_THAT(refusal(config_of(2, 64)), HasSubstr("at least "));
  EXPECT_EQ(refusal(config_of(64, 64)), "");
}

TEST(SweepPlan, AsksForBlocksForPromptsOfTheirOwnAsLongAsSwapsAreMeasured) {
  control::SchedulerConfig config = config_of(0, 512);
  const uint64_t least = blocks_for_sweep(config, 512, 0);
  config.preemption = control::PreemptionKind::kRecompute;
  const uint64_t for_all = blocks_for_sweep(config, 512, 16'384);
  config.preemption = control::PreemptionKind::kSwap;
  const uint64_t blocks = blocks_for_sweep(config, 512, 16'384);
  EXPECT_GT(blocks, 2 * least);
  EXPECT_LT(blocks, for_all) << "32 sequences of 512 tokens could not grow beyond it";
  for (const uint32_t budget : {64U, 512U}) {
    config.num_blocks = config.num_host_blocks = static_cast<uint32_t>(blocks);
    config.max_num_batched_tokens = budget;
    const SweepPlan plan = plan_sweep(config, 1000, true);
    EXPECT_GT(swaps_of(plan), 0U) << notes_of(plan);
    EXPECT_LT(most_sharing(plan, 499), 3);
  }
  config.num_blocks = static_cast<uint32_t>(for_all);
  EXPECT_EQ(most_sharing(plan_sweep(config, 1000, true), 499), 1);
}

TEST(SweepPlan, TheBlocksThatItAsksForLimitNothing) {
  for (const uint32_t longest : {64U, 512U, 8192U}) {
    for (const std::vector<uint32_t>& windows : {std::vector<uint32_t>{0}, {0, 256, 256}}) {
      control::SchedulerConfig config = config_of(0, longest);
      config.kv_windows = windows;
      config.num_blocks = config.num_host_blocks =
          static_cast<uint32_t>(blocks_for_sweep(config, longest, 0));
      const SweepPlan plan = plan_sweep(config, 1e6, true);
      EXPECT_EQ(most(plan, &SweepPiece::chunk), longest - 2);
      EXPECT_EQ(most(plan, &SweepPiece::decoding), 32U);
      EXPECT_EQ(most(plan, &SweepPiece::context), longest - 13);
      if (longest == kLeastLength) continue;  // so short that no number of them fills the pool and then grows
      EXPECT_GT(swaps_of(plan), 0U) << longest << " tokens: " << notes_of(plan);
    }
  }
}

}  // namespace
}  // namespace quire::cli
