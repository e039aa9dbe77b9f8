#include "engine/forecast.h"

#include <gtest/gtest.h>

#include "tests/support/units.h"

namespace quire::engine {
namespace {

using test::kMillisecond;

/// Each step takes a millisecond.
StepCost one_millisecond(const backend::StepWork& /*work*/) { return {.device = 9e5, .host = 1e5}; }

ForecastState roomy() {
  ForecastState state;
  state.now = 100 * kMillisecond;
  state.budget = {8};
  state.free_slots = 4;
  state.available = 100;
  state.block_size = 4;
  return state;
}
ForecastSeq waits(uint32_t prompt, uint32_t answer, bool wanted = false) {
  return {.tokens = prompt, .to_generate = answer, .blocks = (prompt + 3) / 4, .wanted = wanted};
}
/// It has generated tokens.
ForecastSeq runs(uint32_t tokens, uint32_t answer) {
  return {.tokens = tokens,
          .computed = tokens - 1,
          .to_generate = answer,
          .blocks = (tokens + 2) / 4,
          .started = true};
}
/// In milliseconds from the beginning.
double first_of(const ForecastTimes& times) {
  return static_cast<double>(times.first_token - 100 * kMillisecond) / kMillisecond;
}
double end_of(const ForecastTimes& times) {
  return static_cast<double>(times.end - 100 * kMillisecond) / kMillisecond;
}

TEST(Forecast, APromptTakesItsChunksAndAnAnswerItsTokens) {
  ForecastState state = roomy();
  state.waiting = {waits(20, 3, true)};
  const Forecast got = forecast(state, one_millisecond);
  EXPECT_EQ(first_of(got.waiting[0]), 3);  // 8, 8 and 4 tokens
  EXPECT_EQ(end_of(got.waiting[0]), 5);
  EXPECT_FALSE(got.cut);
  state.waiting[0].computed = 12;  // found cached
  EXPECT_EQ(first_of(forecast(state, one_millisecond).waiting[0]), 1);
}

// Each takes a millisecond, and a step that samples nothing no time.
TEST(Forecast, CountsTheRowsThatAreSampled) {
  const StepCosts costs = [](const backend::StepWork& work) {
    EXPECT_EQ(work.sampled_rows, work.logit_rows);
    return StepCost{.device = 1e6 * static_cast<double>(work.sampled_rows)};
  };
  ForecastState state = roomy();
  state.running = {runs(10, 2)};
  state.waiting = {waits(12, 3, true)};
  const Forecast got = forecast(state, costs);
  EXPECT_EQ(end_of(got.running[0]), 3) << "a step of its own, and one in which the prompt ends";
  EXPECT_EQ(first_of(got.waiting[0]), 3);
  EXPECT_EQ(end_of(got.waiting[0]), 5);
}

TEST(Forecast, DecodesTakeTheirPartOfTheBudget) {
  ForecastState state = roomy();
  state.running = {runs(10, 50), runs(12, 50), runs(14, 50)};
  state.waiting = {waits(20, 1, true)};
  const Forecast got = forecast(state, one_millisecond);
  EXPECT_EQ(first_of(got.waiting[0]), 4);  // 5 tokens a step
  EXPECT_EQ(end_of(got.waiting[0]), 4);    // its only token
  EXPECT_EQ(got.running[0].first_token, -1);
  state.budget.besides_decodes = true;
  EXPECT_EQ(first_of(forecast(state, one_millisecond).waiting[0]), 3);  // 8, 8 and 4
}

TEST(Forecast, AContextMakesChunksShorter) {
  ForecastState state = roomy();
  state.context_cost = 125'000;  // 8 tokens of context make a token twice as dear
  state.waiting = {waits(16, 1, true)};
  EXPECT_EQ(first_of(forecast(state, one_millisecond).waiting[0]), 4);  // 8, 4, 3 and 1
}

TEST(Forecast, WhatWaitsForASlotComesWhenAnAnswerEnds) {
  ForecastState state = roomy();
  state.free_slots = 0;
  state.running = {runs(10, 30), runs(10, 20)};
  state.waiting = {waits(4, 5), waits(4, 5, true)};
  const Forecast got = forecast(state, one_millisecond);
  EXPECT_EQ(end_of(got.running[1]), 20);
  EXPECT_EQ(first_of(got.waiting[0]), 21);
  EXPECT_EQ(end_of(got.waiting[0]), 25);
  EXPECT_EQ(first_of(got.waiting[1]), 26);
}

TEST(Forecast, WhatWaitsForBlocksComesWhenTheyAreBack) {
  ForecastState state = roomy();
  state.available = 5;
  state.watermark = 1;
  state.running = {runs(13, 8)};  // 3 blocks; two more for its 8 tokens
  state.waiting = {waits(20, 1, true)};
  const Forecast got = forecast(state, one_millisecond);
  EXPECT_EQ(end_of(got.running[0]), 8);
  EXPECT_EQ(first_of(got.waiting[0]), 11);
  state.available = 7;  // one more for the token of the first step, one is left
  EXPECT_EQ(first_of(forecast(state, one_millisecond).waiting[0]), 3);
}

TEST(Forecast, WhatIsAloneIsAdmittedWhateverItNeeds) {
  ForecastState state = roomy();
  state.available = 5;
  state.watermark = 10;
  state.waiting = {waits(20, 40, true)};
  EXPECT_EQ(end_of(forecast(state, one_millisecond).waiting[0]), 42);
}

TEST(Forecast, TheLastAdmittedIsPreemptedAndComputedAgain) {
  ForecastState state = roomy();
  state.available = 1;
  state.running = {runs(9, 9), runs(9, 9)};  // each needs a block at once, and again after 4 tokens
  state.running[1].wanted = true;
  const Forecast got = forecast(state, one_millisecond);
  EXPECT_EQ(end_of(got.running[0]), 9);
  EXPECT_EQ(end_of(got.running[1]), 9 + 2 + 8);  // 9 tokens, 8 a step; the last one gives the first of 9
}

TEST(Forecast, EachStepOfAStretchLastsLonger) {
  ForecastState state = roomy();
  state.running = {runs(11, 5), runs(21, 5)};
  state.running[0].wanted = true;
  uint32_t asked = 0;
  const StepCosts by_context = [&](const backend::StepWork& work) {
    ++asked;
    return StepCost{static_cast<double>(work.decode_context), 0};
  };
  const Forecast got = forecast(state, by_context);
  EXPECT_EQ(got.running[0].end - state.now, 30 + 32 + 34 + 36 + 38);
  EXPECT_LE(asked, 2U);
}

/// One slot; a sequence that decodes counts for the first of two tenants, of each of whom two wait.
ForecastState two_tenants() {
  ForecastState state = roomy();
  state.free_slots = 1;
  state.running = {runs(9, 50)};
  state.waiting = {waits(4, 1), waits(4, 1), waits(4, 1), waits(4, 1)};
  state.waiting[1].tenant = state.waiting[2].tenant = 1;
  state.served = {0, 5};
  state.all_first = true;
  return state;
}

TEST(Forecast, TheLeastServedTenantGoesFirst) {
  const Forecast got = forecast(two_tenants(), one_millisecond);
  EXPECT_EQ(first_of(got.waiting[0]), 1);  // 2 against 5
  EXPECT_EQ(first_of(got.waiting[1]), 2);  // 10 against 5: a prompt counts 4, and each token 2
  EXPECT_EQ(first_of(got.waiting[2]), 3);  // 12 against 11
  EXPECT_EQ(first_of(got.waiting[3]), 4);
}

TEST(Forecast, APromptThatCountedBeforeDoesNotCountAgain) {
  ForecastState state = two_tenants();
  state.waiting[0].counted = true;
  state.served = {0, 7};
  const Forecast got = forecast(state, one_millisecond);
  EXPECT_EQ(first_of(got.waiting[0]), 1);
  EXPECT_EQ(first_of(got.waiting[3]), 2);  // 6 against 7
}

TEST(Forecast, AllFirstTokensAreForetoldIfTheyAreWanted) {
  ForecastState state = roomy();
  state.waiting = {waits(8, 1, true), waits(8, 2), waits(24, 9)};
  EXPECT_EQ(forecast(state, one_millisecond).waiting[2].first_token, -1);
  state.all_first = true;
  const Forecast got = forecast(state, one_millisecond);
  EXPECT_EQ(first_of(got.waiting[1]), 2);
  EXPECT_EQ(first_of(got.waiting[2]), 6);  // beside a decode that takes one token of a step
}

TEST(Forecast, ALongQueueIsExtrapolatedWithinBounds) {
  ForecastState state = roomy();
  state.block_size = 16;
  state.available = 1'000'000;
  for (int i = 0; i < 2000; ++i) state.waiting.push_back(waits(80, 1));
  state.waiting.back().wanted = true;
  uint32_t asked = 0;
  const StepCosts counted = [&](const backend::StepWork& work) {
    ++asked;
    return one_millisecond(work);
  };
  const Forecast got = forecast(state, counted);
  EXPECT_TRUE(got.cut);
  EXPECT_LE(asked, 2 * kMostForecastEvents);
  EXPECT_NEAR(first_of(got.waiting.back()), 20'000, 10);
}

TEST(Forecast, NothingIsForetoldOfWhatIsNotWanted) {
  const Forecast got = forecast(roomy(), one_millisecond);
  EXPECT_TRUE(got.running.empty() && got.waiting.empty());
}

}  // namespace
}  // namespace quire::engine
