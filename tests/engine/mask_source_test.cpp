#include "engine/mask_source.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/engine/inbox.h"

namespace quire::engine {
namespace {

using test::expect_baseline;
using test::FakeExecutorConfig;
using test::Inbox;
using test::request_of;
using test::Rig;
using namespace std::chrono_literals;

constexpr TokenId kModulus = 7;

/// A token and the sum of the tokens before it have the same remainder.
class SumSource final : public MaskSource {
 public:
  void fill(std::span<uint32_t> mask) override {
    EXPECT_EQ(accepted_, filled_++) << "a mask was asked for twice, or before the token of the last one";
    for (size_t id = 0; id < mask.size() * 32; ++id) {
      if (static_cast<TokenId>(id) % kModulus != sum_ % kModulus) mask[id / 32] &= ~(1U << (id % 32));
    }
  }
  void accept(TokenId token) override {
    ++accepted_;
    sum_ += token;
  }

 private:
  TokenId sum_ = 3;
  uint32_t accepted_ = 0;
  uint32_t filled_ = 0;
};

void expect_sums(const std::vector<TokenId>& tokens) {
  TokenId sum = 3;
  for (const TokenId token : tokens) {
    ASSERT_EQ(token % kModulus, sum % kModulus);
    sum += token;
  }
}

/// Some follow a source, some have a second answer, some neither.
GenerationRequest request(int i) {
  GenerationRequest out = request_of(static_cast<uint64_t>(i), 1 + static_cast<uint32_t>(i) * 5 % 60, 40);
  if (i % 3 != 0) out.make_mask_source = [] { return std::make_unique<SumSource>(); };
  out.n = i % 4 == 1 ? 2 : 1;
  return out;
}

class Masks : public testing::TestWithParam<uint32_t> {
 protected:
  /// An engine with that many steps in flight and few blocks.
  static std::unique_ptr<Rig> rig(Nanos delay = 0) {
    FakeExecutorConfig fake;
    fake.num_blocks = 30;
    fake.depth = GetParam();
    fake.delay = delay;
    return std::make_unique<Rig>(
        fake,
        control::SchedulerConfig{.max_num_seqs = 12, .max_num_batched_tokens = 48, .max_model_len = 200});
  }
};

TEST_P(Masks, AnswersFollowTheirSourcesAndAreTheSameAlone) {
  const auto together = rig();
  Rig alone;
  Inbox inbox;
  for (int i = 0; i < 40; ++i) ASSERT_TRUE(together->engine->submit(request(i), inbox.sink(i)));
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    ASSERT_TRUE(alone.engine->submit(request(i), inbox.sink(1000 + i)));
    const Inbox::Answer answer = inbox.wait(i);
    EXPECT_EQ(answer.tokens, inbox.wait(1000 + i).tokens);
    EXPECT_EQ(answer.tokens.size(), i % 4 == 1 ? 2U : 1U);
    for (const auto& [choice, tokens] : answer.tokens) {
      EXPECT_EQ(tokens.size(), 40U);
      if (i % 3 != 0) expect_sums(tokens);
    }
  }
  EXPECT_GT(together->engine->stats().step.total_preemptions, 0U);
  expect_baseline(*together->engine);
}

/// Throws after some tokens.
class FailingSource final : public MaskSource {
 public:
  explicit FailingSource(bool in_fill) : in_fill_(in_fill) {}
  void fill(std::span<uint32_t>) override {
    if (in_fill_ && accepted_ == 5) throw Error("the grammar is too large");
  }
  void accept(TokenId) override {
    if (++accepted_ == 6) throw Error("the token does not fit the grammar");
  }

 private:
  bool in_fill_;
  uint32_t accepted_ = 0;
};

TEST_P(Masks, ASourceThatFailsEndsItsRequestAlone) {
  const auto together = rig();
  Rig alone;
  Inbox inbox;
  for (int i = 0; i < 20; ++i) {
    GenerationRequest one = request(i);
    if (i % 10 >= 8) one.make_mask_source = [i] { return std::make_unique<FailingSource>(i % 10 == 8); };
    ASSERT_TRUE(together->engine->submit(std::move(one), inbox.sink(i)));
  }
  for (int i = 0; i < 20; ++i) {
    SCOPED_TRACE(i);
    const Inbox::Answer answer = inbox.wait(i);
    if (i % 10 >= 8) {
      ASSERT_TRUE(answer.last.error);
      EXPECT_THAT(answer.last.error->message, testing::HasSubstr("the grammar"));
      continue;
    }
    ASSERT_TRUE(alone.engine->submit(request(i), inbox.sink(1000 + i)));
    EXPECT_EQ(answer.tokens, inbox.wait(1000 + i).tokens);
  }
  EXPECT_EQ(together->engine->failure(), "");
  expect_baseline(*together->engine);
}

/// Leaves no token after some.
class EmptySource final : public MaskSource {
 public:
  void fill(std::span<uint32_t> mask) override {
    if (accepted_ == 4) std::ranges::fill(mask, 0U);
  }
  void accept(TokenId) override { ++accepted_; }

 private:
  uint32_t accepted_ = 0;
};

TEST_P(Masks, ARequestThatLeavesItselfNoTokenIsAtFaultAlone) {
  const auto together = rig();
  Rig alone;
  Inbox inbox;
  for (int i = 0; i < 40; ++i) {
    GenerationRequest one = request(i);
    if (i % 2 == 1) one.make_mask_source = [] { return std::make_unique<EmptySource>(); };
    ASSERT_TRUE(together->engine->submit(std::move(one), inbox.sink(i)));
  }
  for (int i = 0; i < 40; ++i) {
    SCOPED_TRACE(i);
    const Inbox::Answer answer = inbox.wait(i);
    if (i % 2 == 1) {
      ASSERT_TRUE(answer.last.error);
      EXPECT_EQ(answer.last.error->code, RequestErrorCode::kInvalid);
      EXPECT_THAT(answer.last.error->message, testing::HasSubstr("no token is left for position"));
      continue;
    }
    ASSERT_TRUE(alone.engine->submit(request(i), inbox.sink(1000 + i)));
    EXPECT_EQ(answer.tokens, inbox.wait(1000 + i).tokens);
  }
  // However many of them there are, the engine is well.
  for (int i = 0; i < 30; ++i) {
    GenerationRequest one = request(i);
    one.make_mask_source = [] { return std::make_unique<EmptySource>(); };
    ASSERT_TRUE(together->engine->submit(std::move(one), inbox.sink(2000 + i)));
    EXPECT_TRUE(inbox.wait(2000 + i).last.error);
  }
  EXPECT_EQ(together->engine->health_fault(), "");
  expect_baseline(*together->engine);
}

TEST_P(Masks, AnAbortLeavesNothing) {
  const auto rig = Masks::rig(500'000);
  Inbox inbox;
  std::vector<RequestId> ids;
  for (int i = 0; i < 9; ++i) {
    GenerationRequest one = request(i);
    one.max_tokens = 100;
    const auto id = rig->engine->submit(std::move(one), inbox.sink(i));
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  inbox.wait_for_text(0);
  for (const RequestId id : ids) {
    std::this_thread::sleep_for(1ms);
    rig->engine->abort(id);
  }
  for (int i = 0; i < 9; ++i) EXPECT_FALSE(inbox.wait(i).last.error);
  ASSERT_TRUE(rig->engine->submit(request(1), inbox.sink(100)));
  expect_sums(inbox.wait(100).tokens.at(0));
  expect_baseline(*rig->engine);
}

INSTANTIATE_TEST_SUITE_P(Depths, Masks, testing::Values(1U, 2U, 3U));

TEST(MaskSource, ABeamSearchHasNone) {
  Rig rig;
  Inbox inbox;
  GenerationRequest one = request(2);
  one.beam_search = true;
  const auto id = rig.engine->submit(one, inbox.sink(0));
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, RequestErrorCode::kInvalid);
  EXPECT_THAT(id.error().message, testing::HasSubstr("grammar"));
}

TEST(MaskSource, NumbersAreOfOneSequenceEach) {
  MaskSources sources;
  sources.add(5, std::make_unique<SumSource>());
  EXPECT_THROW(sources.add(5 + (SeqId{1} << 31), std::make_unique<SumSource>()), Error);
  sources.remove(5);
  EXPECT_TRUE(sources.empty());
  EXPECT_NE(MaskSources::number(UINT64_MAX), kNoMask);
}

}  // namespace
}  // namespace quire::engine
