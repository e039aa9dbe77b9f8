#include "cli/generate.h"

#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/support/fake_executor.h"
#include "tests/support/letter_tokenizer.h"
#include "tests/support/units.h"

namespace quire::cli {
namespace {

using test::kMillisecond;

/// Stands still but when it is moved.
class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_; }
  void advance(Nanos time) { now_ += time; }

 private:
  std::atomic<Nanos> now_ = 0;
};

/// An engine in which every token takes 10 ms of its clock and none of this machine's.
struct Rig {
  Rig() {
    engine::EngineConfig config;
    config.scheduler.num_blocks = 256;
    config.scheduler.max_model_len = 512;
    config.vocab_size = 256;
    engine = std::make_unique<engine::Engine>(config, tokenizer, executor, clock);
  }

  Generated run(uint32_t max_tokens, uint32_t n = 1, uint32_t best_of = 0,
                const std::function<void(std::string_view)>& on_text = nobody,
                const std::atomic<bool>* stop = nullptr) {
    engine::GenerationRequest request;
    request.prompt = {30, 31, 32, 33, 34};
    request.max_tokens = max_tokens;
    request.ignore_eos = true;
    request.n = n;
    request.best_of = best_of;
    request.sampling.temperature = 1;
    return generate(*engine, clock, std::move(request), on_text, stop);
  }

  static void nobody(std::string_view) {}
  /// All other tokens have come when it has done with the first.
  static void slow_reader(std::string_view) { std::this_thread::sleep_for(std::chrono::milliseconds(100)); }

  ManualClock clock;
  test::LetterTokenizer tokenizer{256};
  test::FakeExecutor executor{
      {.next = [this](std::span<const TokenId> tokens, uint32_t, const SamplingParams&) {
        clock.advance(10 * kMillisecond);
        return static_cast<TokenId>(26 + tokens.size() % 26);
      }}};
  std::unique_ptr<engine::Engine> engine;
};

TEST(Generate, TimesAreThoseOfTheEngineHoweverSlowTheReaderIs) {
  Rig rig;
  int pieces = 0;
  const Generated done = rig.run(20, 1, 0, [&](std::string_view text) {
    if (++pieces < 3) Rig::slow_reader(text);
  });
  EXPECT_EQ(done.first_token, 10 * kMillisecond);
  EXPECT_EQ(done.last_token, 200 * kMillisecond);
  EXPECT_DOUBLE_EQ(done.prefill_speed(), 500);
  EXPECT_DOUBLE_EQ(done.decode_speed(), 100);
  EXPECT_EQ(describe(done),
            "5 prompt tokens (0 cached) at 500.0 tok/s, 20 generated, first after 10 ms, then 100.0 tok/s");
  EXPECT_EQ(done.finish, control::FinishReason::kLength);
  EXPECT_EQ(done.texts.front().size(), 20U);
}

TEST(Generate, OneTokenHasNoSpeedOfDecoding) {
  Rig rig;
  const Generated done = rig.run(1);
  EXPECT_EQ(done.decode_speed(), 0);
  EXPECT_EQ(describe(done), "5 prompt tokens (0 cached) at 500.0 tok/s, 1 generated, first after 10 ms");
}

TEST(Generate, TokensThatComeTogetherAreNoneOfDecoding) {
  Rig rig;
  const Generated done = rig.run(11, 4);
  EXPECT_EQ(done.completion_tokens, 44U);
  EXPECT_DOUBLE_EQ(done.decode_speed(), static_cast<double>(44 - done.first_tokens) * 1e9 /
                                            static_cast<double>(done.last_token - done.first_token));
  EXPECT_NEAR(done.decode_speed(), 100, 1e-6);
}

TEST(Generate, AnswersThatAllComeAtTheEndHaveOneSpeed) {
  Rig rig;
  const Generated done = rig.run(10, 1, 3);
  EXPECT_EQ(describe(done), "5 prompt tokens (0 cached), 30 generated in 300 ms, 100.0 tok/s");
}

TEST(Generate, WhatIsCachedIsNotComputed) {
  Rig rig;
  engine::GenerationRequest request;
  for (int i = 0; i < 33; ++i) request.prompt.push_back(30 + i);
  request.max_tokens = 2;
  const auto none = [](std::string_view) {};
  generate(*rig.engine, rig.clock, request, none);
  const Generated again = generate(*rig.engine, rig.clock, request, none);
  EXPECT_EQ(again.cached_tokens, 32U);
  EXPECT_DOUBLE_EQ(again.prefill_speed(), 100);  // the one that is left, in 10 ms
}

TEST(Generate, StopsAtAWishAndKeepsWhatCame) {
  Rig rig;
  rig.executor.set_delay(5 * kMillisecond);
  std::atomic<bool> stop = false;
  std::string shown;
  const Generated done = rig.run(
      400, 1, 0,
      [&](std::string_view text) {
        shown += text;
        if (shown.size() >= 3) stop = true;
      },
      &stop);
  EXPECT_EQ(done.finish, control::FinishReason::kAbort);
  EXPECT_GE(done.texts.front().size(), 3U);
  EXPECT_LT(done.texts.front().size(), 400U);
  EXPECT_EQ(done.texts.front(), shown);
  EXPECT_EQ(rig.run(5).texts.front().size(), 5U);  // and others are served as before
}

TEST(Generate, SaysWhyARequestIsRefused) {
  Rig rig;
  engine::GenerationRequest request;
  request.prompt.assign(600, 30);
  EXPECT_THROW(generate(*rig.engine, rig.clock, request, [](std::string_view) {}), Error);
}

}  // namespace
}  // namespace quire::cli
