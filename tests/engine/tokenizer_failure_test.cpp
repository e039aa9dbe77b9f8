// A tokenizer that throws while text is made: the request ends with an error, and nobody else notices.
#include <chrono>
#include <map>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/engine/ends.h"
#include "tests/support/failing_tokenizer.h"
#include "tests/support/fake_executor.h"

namespace quire::engine {
namespace {

using test::Ends;
using test::FailingTokenizer;
using testing::HasSubstr;
using namespace std::chrono_literals;

constexpr uint32_t kTokens = 256;
constexpr uint32_t kGoodVocab = 200;  // below kBad
constexpr uint64_t kVictim = 3;       // the seed of the request that fails
constexpr uint64_t kSeeds = 6;

struct FailureRig {
  explicit FailureRig(const test::NextToken& next, bool flush_fails = false, Nanos delay = 0)
      : tokenizer(kTokens, flush_fails), executor({.vocab_size = kTokens, .next = next, .delay = delay}) {
    config.scheduler.num_blocks = 256;
    config.scheduler.max_model_len = 1024;
    config.vocab_size = kTokens;
    config.check_invariants = true;
    engine = std::make_unique<Engine>(config, tokenizer, executor, clock);
  }

  /// Submits a request of each seed, all of 20 tokens.
  std::map<uint64_t, RequestId> submit_all(uint32_t n,
                                           const std::function<void(GenerationRequest&)>& change) {
    std::map<uint64_t, RequestId> ids;
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      GenerationRequest request;
      request.prompt = {static_cast<TokenId>(1 + seed), 5, 6, 7};
      request.n = n;
      request.max_tokens = 20;
      request.sampling.seed = seed;
      if (change) change(request);
      const auto id = engine->submit(std::move(request), ends.sink(seed));
      EXPECT_TRUE(id);
      ids[seed] = *id;
    }
    return ids;
  }

  /// The victim has ended with this error, the others as they were to, and all blocks are back.
  void expect_one_failure(const std::string& why) {
    for (uint64_t seed = 0; seed < kSeeds; ++seed) {
      const RequestOutput end = ends.wait(seed);
      ASSERT_EQ(end.error.has_value(), seed == kVictim) << seed;
      for (const ChoiceOutput& choice : end.choices) {
        EXPECT_EQ(choice.finish,
                  seed == kVictim ? control::FinishReason::kError : control::FinishReason::kLength);
      }
      if (!end.error) continue;
      EXPECT_EQ(end.error->code, RequestErrorCode::kInternal);
      EXPECT_THAT(end.error->message, HasSubstr(why));
    }
    expect_baseline();
  }
  void expect_baseline() {
    for (int i = 0; i < 5000 && engine->stats().step.blocks_referenced > 0; ++i) {
      std::this_thread::sleep_for(1ms);
    }
    EXPECT_EQ(engine->stats().step.blocks_referenced, 0U);
    EXPECT_EQ(engine->stats().step.running, 0U);
  }

  FailingTokenizer tokenizer;
  test::FakeExecutor executor;
  SteadyClock clock;
  EngineConfig config;
  Ends ends;
  std::unique_ptr<Engine> engine;
};

test::NextToken good_tokens() { return test::hashed_continuation(kGoodVocab); }

/// Good tokens, but the victim's choice `choice` says kBad as its seventh.
test::NextToken one_bad_token(uint32_t choice) {
  return [good = good_tokens(), choice](std::span<const TokenId> tokens, uint32_t prompt_length,
                                        const SamplingParams& sampling) {
    const bool bad =
        sampling.seed == kVictim && sampling.choice == choice && tokens.size() == prompt_length + 6;
    return bad ? FailingTokenizer::kBad : good(tokens, prompt_length, sampling);
  };
}

TEST(TokenizerFailure, InThePrompt) {
  FailureRig rig(good_tokens());
  rig.submit_all(2, [](GenerationRequest& request) {
    if (request.sampling.seed == kVictim) request.prompt.back() = FailingTokenizer::kBad;
  });
  rig.expect_one_failure("the token has no text");
}

TEST(TokenizerFailure, InAnAnswer) {
  FailureRig rig(one_bad_token(0));
  rig.submit_all(1, {});
  rig.expect_one_failure("the token has no text");
}

TEST(TokenizerFailure, InOneOfSeveralAnswersEndsAllOfThem) {
  FailureRig rig(one_bad_token(2));
  rig.submit_all(4, {});
  rig.expect_one_failure("the token has no text");
}

TEST(TokenizerFailure, AtTheEndOfAnAnswer) {
  FailureRig rig(good_tokens(), true);
  rig.submit_all(1, {});
  for (uint64_t seed = 0; seed < kSeeds; ++seed) {
    const RequestOutput end = rig.ends.wait(seed);
    ASSERT_TRUE(end.error);
    EXPECT_THAT(end.error->message, HasSubstr("the text has no end"));
  }
  rig.expect_baseline();
}

TEST(TokenizerFailure, WhenARequestIsAborted) {
  FailureRig rig(good_tokens(), true, 2'000'000);
  const auto ids = rig.submit_all(2, [](GenerationRequest& request) { request.max_tokens = 1000; });
  for (const auto& [seed, id] : ids) rig.engine->abort(id);
  for (const auto& [seed, id] : ids) {
    const RequestOutput end = rig.ends.wait(seed);
    EXPECT_FALSE(end.error);
    for (const ChoiceOutput& choice : end.choices) EXPECT_EQ(choice.finish, control::FinishReason::kAbort);
  }
  rig.expect_baseline();
}

}  // namespace
}  // namespace quire::engine
