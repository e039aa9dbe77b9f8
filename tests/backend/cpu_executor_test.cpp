#include "backend/cpu/cpu_executor.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/backend/bad_plans.h"
#include "tests/backend/owning_executor.h"
#include "tests/support/data.h"

namespace quire::backend {
namespace {

class CpuExecutorTest : public testing::Test {
 protected:
  std::unique_ptr<test::OwningExecutor> make(uint32_t num_blocks, uint32_t max_slots) {
    return std::make_unique<test::OwningExecutor>(*rig_.decoder, rig_.context, num_blocks, max_slots);
  }
  test::Rig rig_{test::demo_model_dir(), {.compute = DType::kF32}, kernels::best_isa_level(), 2};
};

TEST_F(CpuExecutorTest, RefusesPlansThatContradictThemselves) {
  for (const test::BadPlan& bad : test::bad_plans()) {
    const auto executor = make(8, 2);
    executor->wait(executor->submit(test::first_plan()));
    EXPECT_THROW(executor->submit(bad.plan), Error) << bad.name;
  }
}

TEST_F(CpuExecutorTest, TicketsAreWaitedForOnceAndInOrder) {
  const auto executor = make(8, 2);
  EXPECT_THROW(executor->wait(0), Error);
  const Ticket ticket = executor->submit(test::first_plan());
  for (uint32_t i = 1; i < kMostOpenSteps; ++i) executor->submit(control::StepPlan());
  EXPECT_THROW(executor->submit(control::StepPlan()), Error);
  EXPECT_THROW(executor->wait(ticket + 1), Error);
  EXPECT_EQ(executor->wait(ticket).seqs.size(), 1U);
  EXPECT_THROW(executor->wait(ticket), Error);
  for (uint32_t i = 1; i < kMostOpenSteps; ++i) EXPECT_TRUE(executor->wait(ticket + i).seqs.empty());
  EXPECT_TRUE(executor->wait(executor->submit(control::StepPlan())).seqs.empty());
}

TEST_F(CpuExecutorTest, GivesTokensOnlyWhereTheyAreWanted) {
  const auto executor = make(8, 2);
  control::StepPlan plan = test::first_plan();
  const control::StepResult nothing = executor->wait(executor->submit(plan));
  ASSERT_EQ(nothing.seqs.size(), 1U);
  EXPECT_FALSE(nothing.seqs[0].token);
  EXPECT_GT(nothing.times.compute, 0);
  plan = control::StepPlan();
  plan.seqs.resize(1);
  plan.seqs[0].slot = 0;
  plan.seqs[0].first_position = 5;
  plan.seqs[0].tokens = {6};
  plan.seqs[0].rows = control::LogitRows::kLast;
  const control::StepResult one = executor->wait(executor->submit(plan));
  ASSERT_TRUE(one.seqs[0].token);
  EXPECT_EQ(one.seqs[0].error, "");
}

// A model of three K/V groups: two see 16 tokens, one all.
TEST(CpuExecutorGroups, WantsATableForEachAndNothingBehindAWindow) {
  const auto relative = std::filesystem::path("golden-models/gemma2");
  QUIRE_NEEDS_DATA(relative);
  test::Rig rig(test::data_dir() / relative, {.compute = DType::kF32}, kernels::best_isa_level(), 1);
  ASSERT_EQ(rig.decoder->shape().kv_windows, (std::vector<uint32_t>{0, 16, 16}));
  const auto submit = [&](std::vector<BlockId> shared, std::vector<BlockId> fresh, uint32_t position) {
    test::OwningExecutor executor(*rig.decoder, rig.context, 16, 1);
    control::StepPlan plan;
    plan.added.resize(1);
    plan.added[0].slot = 0;
    plan.added[0].prompt_length = 40;
    plan.added[0].blocks = std::move(shared);
    plan.seqs.resize(1);
    plan.seqs[0].slot = 0;
    plan.seqs[0].first_position = position;
    plan.seqs[0].tokens = {5};
    plan.seqs[0].new_blocks = std::move(fresh);
    executor.wait(executor.submit(plan));
  };
  EXPECT_NO_THROW(submit({}, {0, 1, 2}, 0));
  EXPECT_THROW(submit({}, {0, 1}, 0), Error);
  EXPECT_THROW(submit({}, {0, 1, kNoBlock}, 0), Error);
  EXPECT_NO_THROW(submit({0, 1, kNoBlock, 2, kNoBlock, 3}, {4, 5, 6}, 32));  // position 32 sees 17
  EXPECT_THROW(submit({0, 1, kNoBlock, 2, kNoBlock, kNoBlock}, {4, 5, 6}, 32), Error);
  EXPECT_THROW(submit({0, kNoBlock, kNoBlock, 2, kNoBlock, 3}, {4, 5, 6}, 32), Error);
}

// Two sequences decode; the K/V of one becomes NaN on the way.
TEST_F(CpuExecutorTest, LogitsThatAreNotFiniteEndTheirSequenceOnly) {
  const auto run = [&](bool poison) {
    const auto executor = make(8, 2);
    control::StepPlan plan;
    for (const SlotId slot : {0U, 1U}) {
      control::NewSeq added;
      added.slot = slot;
      added.prompt_length = 3;
      added.sampling.seed = 5;
      added.sampling.num_logprobs = 5;
      plan.added.push_back(added);
      control::SeqStep seq;
      seq.slot = slot;
      seq.tokens = {100, 200, static_cast<TokenId>(300 + slot)};
      seq.new_blocks = {slot};
      seq.rows = control::LogitRows::kLast;
      plan.seqs.push_back(seq);
    }
    control::StepResult first = executor->wait(executor->submit(plan));
    if (poison) {
      cpu::KvCache& cache = executor->cache();
      std::memset(cache.layer(2) + 1 * cache.block_bytes(), 0xff, cache.block_bytes());
    }
    plan.added.clear();
    for (const SlotId slot : {0U, 1U}) {
      plan.seqs[slot].first_position = 3;
      plan.seqs[slot].tokens = {first.seqs[slot].token.value().token};
      plan.seqs[slot].new_blocks.clear();
    }
    return executor->wait(executor->submit(plan));
  };
  const control::StepResult sound = run(false);
  const control::StepResult poisoned = run(true);
  EXPECT_FALSE(poisoned.seqs[1].token);
  EXPECT_THAT(poisoned.seqs[1].error, testing::HasSubstr("position 4"));
  EXPECT_EQ(poisoned.seqs[0].error, "");
  ASSERT_TRUE(poisoned.seqs[0].token);
  EXPECT_EQ(poisoned.seqs[0].token.value().token, sound.seqs[0].token.value().token);
  EXPECT_EQ(poisoned.seqs[0].token.value().logprob, sound.seqs[0].token.value().logprob);
  EXPECT_EQ(sound.seqs[1].error, "");
}

TEST_F(CpuExecutorTest, ASequenceWithoutAnAllowedTokenEndsAloneAndSaysWhy) {
  auto specs = test::mixed_requests(rig_.decoder->config().vocab_size, 6, 5);
  const auto sound = test::run_alone(rig_.make_executor(), specs);
  specs[2].sampling = SamplingParams();
  specs[2].sampling.allowed_tokens = {7};
  specs[2].sampling.bad_words = {{7, 7, 7}};
  const auto executor = make(64, 6);
  control::SchedulerConfig config;
  config.num_blocks = 64;
  config.block_size = test::kBlockSize;
  config.max_num_seqs = 6;
  config.max_num_batched_tokens = 512;
  config.max_model_len = 128;
  control::Scheduler scheduler(config);
  test::RunLog log;
  auto found = test::run_to_end(scheduler, *executor, specs, log, 2);
  const auto at = static_cast<uint32_t>(specs[2].prompt.size()) + 2;
  EXPECT_EQ(found[2].error,
            "bad_words and allowed_token_ids leave no token for position " + std::to_string(at));
  EXPECT_EQ(found[2].finish, control::FinishReason::kError);
  EXPECT_EQ(found[2].tokens.size(), 2U);
  found[2] = sound[2];
  EXPECT_EQ(test::difference(sound, found), "");
}

/// Allows the same tokens at every call; fails for one source.
class FixedMasks final : public TokenMasks {
 public:
  FixedMasks(std::vector<TokenId> allowed, uint32_t failing)
      : allowed_(std::move(allowed)), failing_(failing) {}
  void fill(uint32_t source, std::span<uint32_t> mask) override {
    if (source == failing_) throw Error("this mask cannot be made");
    std::ranges::fill(mask, 0U);
    for (const TokenId token : allowed_) {
      mask[static_cast<uint32_t>(token) / 32] |= 1U << (static_cast<uint32_t>(token) % 32);
    }
  }

 private:
  std::vector<TokenId> allowed_;
  uint32_t failing_;
};

/// A plan for four sequences that sample, with what `sampling` says of each.
control::StepPlan four_prompts(const std::function<SamplingParams(uint32_t)>& sampling) {
  control::StepPlan plan;
  for (uint32_t slot = 0; slot < 4; ++slot) {
    control::NewSeq& added = plan.added.emplace_back();
    added.slot = slot;
    added.prompt_length = 3;
    added.sampling = sampling(slot);
    control::SeqStep& seq = plan.seqs.emplace_back();
    seq.slot = slot;
    seq.tokens = {7, 8, static_cast<TokenId>(9 + slot)};
    seq.new_blocks = {slot};
    seq.rows = control::LogitRows::kLast;
  }
  return plan;
}

TEST_F(CpuExecutorTest, LateRowsAreSampledWithTheirMasks) {
  const std::vector<TokenId> allowed = {3, 64, 95, 700};
  const auto sampling = [&](bool late) {
    return [&, late](uint32_t slot) {
      SamplingParams out;
      out.seed = slot;
      out.num_logprobs = 2;
      if (slot % 2 == 1 && late) out.mask = slot;
      if (slot % 2 == 1 && !late) out.allowed_tokens = allowed;
      return out;
    };
  };
  const auto executor = make(8, 4);
  const Ticket ticket = executor->submit(four_prompts(sampling(true)));
  FixedMasks masks(allowed, 3);
  executor->provide(ticket, masks);
  const control::StepResult late = executor->wait(ticket);
  const auto second = make(8, 4);
  const control::StepResult known = second->wait(second->submit(four_prompts(sampling(false))));
  for (size_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(late.seqs[i].token) << late.seqs[i].error;
    EXPECT_EQ(late.seqs[i].token.value().token, known.seqs[i].token.value().token);
    // Among the tokens of a mask each is likelier than among all.
    const bool masked = i % 2 == 1;
    EXPECT_EQ(late.seqs[i].token.value().logprob == known.seqs[i].token.value().logprob, !masked);
    EXPECT_GE(late.seqs[i].token.value().logprob, known.seqs[i].token.value().logprob);
  }
  EXPECT_EQ(late.seqs[3].error, "this mask cannot be made");
  EXPECT_FALSE(late.seqs[3].token);
}

TEST_F(CpuExecutorTest, MasksComeAfterTheStepsBeforeAndBeforeTheNext) {
  const auto executor = make(8, 4);
  FixedMasks masks({1}, kNoMask);
  const Ticket first = executor->submit(control::StepPlan());
  const Ticket late = executor->submit(four_prompts([](uint32_t slot) {
    SamplingParams out;
    if (slot == 2) out.mask = 0;
    return out;
  }));
  EXPECT_THROW(executor->provide(late, masks), Error);
  EXPECT_THROW(executor->submit(control::StepPlan()), Error);
  EXPECT_TRUE(executor->wait(first).seqs.empty());
  EXPECT_THROW(executor->wait(late), Error);
  EXPECT_THROW(executor->provide(late + 1, masks), Error);
  executor->provide(late, masks);
  const Ticket next = executor->submit(control::StepPlan());
  EXPECT_EQ(executor->wait(late).seqs[2].token.value().token, 1);
  executor->provide(next, masks);  // has no late rows
  EXPECT_TRUE(executor->wait(next).seqs.empty());
}

/// The last states of all beginnings of a prompt, added up, are its mean.
TEST_F(CpuExecutorTest, TheMeanIsThatOfTheStatesOfAllTokens) {
  control::SeqSpec whole = test::mixed_requests(rig_.decoder->config().vocab_size, 1, 1)[0];
  whole.sampling = {};
  whole.max_tokens = 0;
  whole.wants = {.pooling = Pooling::kMean};
  std::vector<control::SeqSpec> specs = {whole};
  for (size_t length = 1; length <= whole.prompt.size(); ++length) {
    control::SeqSpec& part = specs.emplace_back(whole);
    part.id = length;
    part.prompt.write().resize(length);
    part.wants.pooling = Pooling::kLast;
  }
  const auto found = test::run_alone(rig_.make_executor(), specs);
  std::vector<double> sum(rig_.decoder->config().hidden_size);
  for (size_t i = 1; i < found.size(); ++i) {
    ASSERT_EQ(found[i].prompt.pooled.size(), sum.size());
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += static_cast<double>(found[i].prompt.pooled[k]);
  }
  ASSERT_EQ(found[0].prompt.pooled.size(), sum.size());
  for (size_t k = 0; k < sum.size(); ++k) {
    const double mean = sum[k] / static_cast<double>(whole.prompt.size());
    EXPECT_EQ(found[0].prompt.pooled[k], static_cast<float>(mean));
  }
  EXPECT_NE(found[0].prompt.pooled, found.back().prompt.pooled);
}

TEST_F(CpuExecutorTest, SeedAndChoiceMakeTheText) {
  auto specs = test::mixed_requests(rig_.decoder->config().vocab_size, 1, 20);
  specs[0].sampling = SamplingParams();
  specs[0].sampling.seed = 3;
  const auto text_of = [&](uint64_t seed, uint32_t choice) {
    specs[0].sampling.seed = seed;
    specs[0].sampling.choice = choice;
    std::vector<TokenId> out;
    const auto found = test::run_alone(rig_.make_executor(), specs);
    for (const SampledToken& token : found[0].tokens) {
      out.push_back(token.token);
    }
    return out;
  };
  EXPECT_EQ(text_of(3, 0), text_of(3, 0));
  EXPECT_EQ((std::set<std::vector<TokenId>>{text_of(3, 0), text_of(3, 1), text_of(4, 0)}).size(), 3U);
}

}  // namespace
}  // namespace quire::backend
