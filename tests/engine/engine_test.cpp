#include "engine/engine.h"

#include <algorithm>
#include <future>
#include <map>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/engine/inbox.h"

namespace quire::engine {
namespace {

using test::expect_baseline;
using test::FakeExecutor;
using test::FakeExecutorConfig;
using test::Inbox;
using test::kVocab;
using test::request_of;
using test::Rig;

/// FakeExecutor finds all that it samples equally likely, and ties go to the earlier choice.
TEST(Engine, BestOfAnswersAtTheEndWithTheBest) {
  Rig rig;
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 30);
  request.n = 2;
  request.best_of = 5;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  const Inbox::Answer best = inbox.wait(0);
  EXPECT_EQ(best.pieces, 1);
  EXPECT_EQ(best.tokens.size(), 2U);
  EXPECT_EQ(best.last.completion_tokens, 5U * 30U);  // all that was sampled is told
  request.best_of = 2;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(1)));
  const Inbox::Answer plain = inbox.wait(1);
  EXPECT_EQ(best.text, plain.text);
  expect_baseline(*rig.engine);
}

TEST(Engine, BeamsDependOnNobodyElse) {
  GenerationRequest request = request_of(1, 20, 30);
  request.n = 3;
  request.best_of = 4;
  request.beam_search = true;
  std::map<uint32_t, std::vector<TokenId>> alone;
  {
    Rig rig;
    Inbox inbox;
    ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
    const Inbox::Answer answer = inbox.wait(0);
    EXPECT_EQ(answer.pieces, 1);
    EXPECT_EQ(answer.last.completion_tokens, 90U);
    EXPECT_EQ(answer.text.at(2), rig.tokenizer.decode(answer.tokens.at(2), true));
    alone = answer.tokens;
    EXPECT_NE(alone.at(0), alone.at(1));
    EXPECT_GT(rig.engine->stats().step.total_copies, 0U) << "the beams share no block";
    expect_baseline(*rig.engine);
  }
  FakeExecutorConfig fake;
  fake.num_blocks = 16;  // for 256 tokens: less than half of what they want
  Rig rig(fake, {.max_num_seqs = 9, .max_num_batched_tokens = 12, .max_model_len = 100});
  Inbox inbox;
  for (int i = 0; i < 4; ++i) {
    ASSERT_TRUE(rig.engine->submit(request, inbox.sink(2 * i)));
    ASSERT_TRUE(rig.engine->submit(request_of(static_cast<uint64_t>(i) + 50, 30, 40), inbox.sink(2 * i + 1)));
  }
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(inbox.wait(2 * i).tokens, alone);
    inbox.wait(2 * i + 1);
  }
  EXPECT_GT(rig.engine->stats().step.total_preemptions, 0U);
  expect_baseline(*rig.engine);
}

TEST(Engine, AnswersOneRequest) {
  Rig rig;
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(1, 20, 30), inbox.sink(0)));
  const Inbox::Answer answer = inbox.wait(0);
  EXPECT_EQ(answer.tokens.at(0).size(), 30U);
  EXPECT_EQ(answer.text.at(0), rig.tokenizer.decode(answer.tokens.at(0), true));
  EXPECT_EQ(answer.finish.at(0), control::FinishReason::kLength);
  EXPECT_EQ(answer.last.prompt_tokens, 20U);
  EXPECT_EQ(answer.last.completion_tokens, 30U);
  EXPECT_GE(answer.pieces, 30);
  expect_baseline(*rig.engine);
}

TEST(Engine, YieldsWhatIsWantedOfAPrompt) {
  FakeExecutorConfig fake;
  fake.num_blocks = 24;  // few: preemptions
  Rig rig(fake, {.max_num_seqs = 8, .max_num_batched_tokens = 16, .max_model_len = 200});
  Inbox inbox;
  for (int i = 0; i < 12; ++i) {
    GenerationRequest request = request_of(static_cast<uint64_t>(i) % 4, 40, i % 3 == 0 ? 0 : 60);
    request.n = i % 4 == 1 ? 2 : 1;
    request.wants = {.logprobs = 3, .first_row = static_cast<uint32_t>(i % 2) * 17};
    request.wants.pooling = Pooling{static_cast<uint8_t>(i % 3)};
    ASSERT_TRUE(rig.engine->submit(request, inbox.sink(i)));
  }
  for (int i = 0; i < 12; ++i) {
    SCOPED_TRACE(i);
    const Inbox::Answer answer = inbox.wait(i);
    const std::vector<TokenId> prompt = request_of(static_cast<uint64_t>(i) % 4, 40, 1).prompt;
    const uint32_t first = static_cast<uint32_t>(i % 2) * 17;
    ASSERT_EQ(answer.prompt.rows.size(), 39 - first);
    for (uint32_t row = first; row < 39; ++row) {
      EXPECT_EQ(answer.prompt.rows[row - first].row, row);
      EXPECT_EQ(answer.prompt.rows[row - first].next.token, prompt[row + 1]);
      EXPECT_EQ(answer.prompt.rows[row - first].next.top.size(), 3U);
    }
    EXPECT_FALSE(answer.rows_after_token);
    const float sum = static_cast<float>(std::accumulate(prompt.begin(), prompt.end(), 0));
    std::vector<float> pooled;
    if (i % 3 == 1) pooled = {static_cast<float>(prompt.back())};
    if (i % 3 == 2) pooled = {sum / 40.0F};
    EXPECT_EQ(answer.prompt.pooled, pooled);
    EXPECT_EQ(answer.finish.at(0), control::FinishReason::kLength);
    EXPECT_EQ(answer.last.completion_tokens, (i % 3 == 0 ? 0U : 60U) * (i % 4 == 1 ? 2U : 1U));
  }
  EXPECT_GT(rig.engine->stats().step.total_preemptions, 0U);
  expect_baseline(*rig.engine);
}

/// For a moment there are more of them than run and wait at most.
TEST(Engine, BeamsNeedNoPlaceInTheQueue) {
  Rig rig({}, {.max_num_seqs = 4, .max_num_batched_tokens = 64, .max_model_len = 100, .max_waiting = 0});
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 30);
  request.n = 4;
  request.beam_search = true;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  const Inbox::Answer answer = inbox.wait(0);
  EXPECT_EQ(answer.finish.at(0), control::FinishReason::kLength);
  EXPECT_EQ(answer.last.completion_tokens, 120U);
  expect_baseline(*rig.engine);
}

TEST(Engine, ABeamSearchYieldsOnlyTokens) {
  Rig rig;
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 30);
  request.beam_search = true;
  request.wants.pooling = Pooling::kMean;
  const auto pooled = rig.engine->submit(request, inbox.sink(0));
  ASSERT_FALSE(pooled);
  EXPECT_EQ(pooled.error().code, RequestErrorCode::kInvalid);
  EXPECT_THAT(pooled.error().message, testing::HasSubstr("only tokens"));
  request.wants = {};
  request.max_tokens = 0;
  EXPECT_FALSE(rig.engine->submit(request, inbox.sink(0)));
}

TEST(Engine, EosEndsUnlessIgnored) {
  FakeExecutorConfig fake;
  fake.next = test::scripted_continuation({5, 6, 0, 7});
  Rig rig(fake);
  Inbox inbox;
  GenerationRequest request = request_of(1, 4, 8);
  request.ignore_eos = false;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  request.ignore_eos = true;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(1)));
  const Inbox::Answer stopped = inbox.wait(0);
  EXPECT_EQ(stopped.text.at(0), "fg");
  EXPECT_EQ(stopped.finish.at(0), control::FinishReason::kStop);
  EXPECT_EQ(stopped.last.choices.at(0).stop_token, 0);
  EXPECT_EQ(inbox.wait(1).tokens.at(0).size(), 8U);
}

TEST(Engine, StopStringsEndTheTextAndFreeTheBlocks) {
  FakeExecutorConfig fake;
  fake.next = test::scripted_continuation({7, 4, 11, 11, 14, 22});  // h e l l o w
  Rig rig(fake);
  Inbox inbox;
  GenerationRequest request = request_of(3, 10, 200);
  request.stop = {"lo", "zzz"};
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  request.include_stop_str_in_output = true;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(1)));
  const Inbox::Answer cut = inbox.wait(0);
  EXPECT_EQ(cut.text.at(0), "hel");
  EXPECT_EQ(cut.finish.at(0), control::FinishReason::kStop);
  EXPECT_EQ(cut.last.choices.at(0).stop_string, "lo");
  EXPECT_EQ(inbox.wait(1).text.at(0), "hello");
  expect_baseline(*rig.engine);
}

TEST(Engine, ManyTogetherAnswerAsEachAlone) {
  FakeExecutorConfig fake;
  fake.num_blocks = 40;  // far too few for all: preemptions
  control::SchedulerConfig scheduler;
  scheduler.max_num_seqs = 16;
  scheduler.max_num_batched_tokens = 48;
  scheduler.max_model_len = 200;
  Rig together(fake, scheduler);
  Inbox inbox;
  constexpr int kRequests = 60;
  std::vector<std::thread> clients;
  for (int thread = 0; thread < 3; ++thread) {
    clients.emplace_back([&, thread] {
      for (int i = thread; i < kRequests; i += 3) {
        ASSERT_TRUE(together.engine->submit(request_of(i, 1 + i * 3 % 100, 5 + i), inbox.sink(i)));
      }
    });
  }
  for (std::thread& client : clients) client.join();
  Rig alone;
  for (int i = 0; i < kRequests; ++i) {
    ASSERT_TRUE(alone.engine->submit(request_of(i, 1 + i * 3 % 100, 5 + i), inbox.sink(1000 + i)));
    EXPECT_EQ(inbox.wait(i).tokens, inbox.wait(1000 + i).tokens) << i;
  }
  EXPECT_GT(together.engine->stats().step.total_preemptions, 0U);
  EXPECT_EQ(together.engine->stats().requests_finished[static_cast<size_t>(control::FinishReason::kLength)],
            60U);
  expect_baseline(*together.engine);
}

TEST(Engine, ChoicesDifferAndShareThePrompt) {
  Rig rig;
  Inbox inbox;
  GenerationRequest request = request_of(9, 100, 12);
  request.n = 4;
  ASSERT_TRUE(rig.engine->submit(request, inbox.sink(0)));
  const Inbox::Answer answer = inbox.wait(0);
  ASSERT_EQ(answer.tokens.size(), 4U);
  std::map<std::vector<TokenId>, int> distinct;
  for (const auto& [index, tokens] : answer.tokens) ++distinct[tokens];
  EXPECT_EQ(distinct.size(), 4U);
  EXPECT_EQ(answer.last.completion_tokens, 48U);
  expect_baseline(*rig.engine);
}

TEST(Engine, RefusesWhatCannotRun) {
  control::SchedulerConfig scheduler;
  scheduler.max_model_len = 100;
  Rig rig({}, scheduler);
  Inbox inbox;
  const auto too_long = rig.engine->submit(request_of(1, 90, 11), inbox.sink(0));
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, RequestErrorCode::kTooLong);
  EXPECT_THAT(too_long.error().message, testing::AllOf(testing::HasSubstr("100"), testing::HasSubstr("101")));
  const auto empty = rig.engine->submit(request_of(1, 0, 1), inbox.sink(0));
  ASSERT_FALSE(empty);
  EXPECT_EQ(empty.error().code, RequestErrorCode::kInvalid);

  FakeExecutorConfig small;
  small.num_blocks = 4;
  Rig tiny(small);
  const auto too_large = tiny.engine->submit(request_of(1, 64, 2), inbox.sink(0));
  ASSERT_FALSE(too_large);
  EXPECT_THAT(too_large.error().message, testing::HasSubstr("holds 65 tokens"));
  ASSERT_TRUE(tiny.engine->submit(request_of(1, 64, 1), inbox.sink(0)));
  EXPECT_EQ(inbox.wait(0).tokens.at(0).size(), 1U);  // it is never computed, so it needs no K/V
  GenerationRequest open_ended = request_of(1, 10, 1);
  open_ended.max_tokens.reset();
  ASSERT_TRUE(tiny.engine->submit(open_ended, inbox.sink(1)));
  EXPECT_EQ(inbox.wait(1).tokens.at(0).size(), 55U);  // as many as the pool holds, and the last one
}

TEST(Engine, TheQueueIsBounded) {
  FakeExecutorConfig fake;
  fake.max_slots = 2;
  std::promise<void> stepping;
  std::promise<void> all_submitted;  // until then the first step goes on
  std::once_flag first_step;
  fake.next = [&, next = test::hashed_continuation(kVocab)](std::span<const TokenId> tokens, uint32_t length,
                                                            const SamplingParams& sampling) {
    std::call_once(first_step, [&] {
      stepping.set_value();
      all_submitted.get_future().wait();
    });
    return next(tokens, length, sampling);
  };
  control::SchedulerConfig scheduler;
  scheduler.max_num_seqs = 2;
  scheduler.max_waiting = 3;
  Rig rig(fake, scheduler);
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(0, 8, 50), inbox.sink(0)));
  stepping.get_future().wait();
  int accepted = 1;
  for (int i = 1; i < 20; ++i) {
    const auto id = rig.engine->submit(request_of(i, 8, 50), inbox.sink(accepted));
    if (id) {
      ++accepted;
    } else {
      EXPECT_EQ(id.error().code, RequestErrorCode::kQueueFull);
    }
  }
  all_submitted.set_value();
  EXPECT_EQ(accepted, 5) << "the one that runs has a place of those that may run";
  GenerationRequest wide = request_of(1, 8, 1);
  wide.n = 6;
  const auto never = rig.engine->submit(wide, inbox.sink(100));
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, RequestErrorCode::kInvalid) << "later would not help";
  EXPECT_EQ(never.error().param, "n");
  EXPECT_THAT(never.error().message, testing::AllOf(testing::HasSubstr("6"), testing::HasSubstr("5")));
  for (int i = 0; i < accepted; ++i) EXPECT_EQ(inbox.wait(i).finish.at(0), control::FinishReason::kLength);
  expect_baseline(*rig.engine);
}

/// The error comes with the last output alone, by which time the engine's health knows it.
TEST(Engine, AChoiceThatFailsBeforeTheOthersIsToldAtTheEnd) {
  FakeExecutorConfig fake;
  fake.next = [](std::span<const TokenId> /*tokens*/, uint32_t /*prompt_length*/,
                 const SamplingParams& sampling) { return TokenId{sampling.choice == 0 ? -1 : 30}; };
  Rig rig(fake);
  for (uint32_t i = 1; i <= Engine::kMostFailures; ++i) {
    GenerationRequest request = request_of(1, 8, 20);
    request.n = 3;
    std::promise<void> ended;
    std::vector<bool> errors;
    ASSERT_TRUE(rig.engine->submit(std::move(request), [&](RequestOutput output) {
      errors.push_back(output.error.has_value());
      if (output.done) ended.set_value();
    }));
    ended.get_future().wait();
    ASSERT_GT(errors.size(), 10U);
    EXPECT_TRUE(errors.back());
    EXPECT_EQ(std::ranges::count(errors, true), 1);
    EXPECT_EQ(rig.engine->health_fault().empty(), i < Engine::kMostFailures);
  }
}

TEST(Engine, TokensThatTheModelDoesNotKnowAreRefused) {
  Rig rig;
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(1, 20, 200), inbox.sink(0)));
  for (const TokenId bad : {static_cast<TokenId>(kVocab), -1, INT32_MAX}) {
    GenerationRequest request = request_of(2, 20, 5);
    request.prompt[3] = bad;
    const auto refused = rig.engine->submit(request, inbox.sink(1));
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, RequestErrorCode::kInvalid);
    EXPECT_EQ(refused.error().param, "prompt");
    EXPECT_THAT(refused.error().message, testing::HasSubstr(fmt::format("Token 3 of the prompt is {}", bad)));
  }
  inbox.wait(0);
  EXPECT_EQ(rig.engine->failure(), "");
}

}  // namespace
}  // namespace quire::engine
