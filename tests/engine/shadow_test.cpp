#include "engine/shadow.h"

#include <algorithm>
#include <memory>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "tests/engine/engine_rig.h"

namespace quire::engine {
namespace {

using testing::HasSubstr;

StepCost as_observed(double factor) { return {.device = 8e6 * factor, .host = 2e6 * factor}; }

TEST(Drift, IsTheRatioOfTheSumsOfTheLastSteps) {
  Drift drift;
  EXPECT_EQ(drift.bias(StepKind::kDecode), 0);
  EXPECT_FALSE(drift.is_off(StepKind::kDecode));
  for (size_t i = 0; i + 1 < Drift::kLeast; ++i)
    drift.add(StepKind::kDecode, as_observed(1), as_observed(1.25));
  EXPECT_NEAR(drift.bias(StepKind::kDecode), -0.2, 1e-9);
  EXPECT_FALSE(drift.is_off(StepKind::kDecode)) << "too few steps";
  drift.add(StepKind::kDecode, as_observed(1), as_observed(1.25));
  EXPECT_TRUE(drift.is_off(StepKind::kDecode));
  EXPECT_FALSE(drift.is_off(StepKind::kMixed));
  for (size_t i = 0; i < Drift::kKept; ++i) drift.add(StepKind::kDecode, as_observed(1), as_observed(1.04));
  EXPECT_NEAR(drift.bias(StepKind::kDecode), 1 / 1.04 - 1, 1e-9);
  EXPECT_FALSE(drift.is_off(StepKind::kDecode));
}

TEST(Drift, OneVeryLongStepIsNoDrift) {
  Drift drift;
  for (size_t i = 0; i < 100; ++i) drift.add(StepKind::kMixed, as_observed(1), as_observed(1));
  drift.add(StepKind::kMixed, as_observed(1), as_observed(1000));
  EXPECT_FALSE(drift.is_off(StepKind::kMixed));
  EXPECT_NEAR(drift.bias(StepKind::kMixed), 101.0 / 104 - 1, 1e-9);
}

TEST(Drift, NamesKindAndPhase) {
  Drift drift;
  for (int i = 0; i < 64; ++i) {
    drift.add(StepKind::kPrefill, {.device = 8e6, .host = 2e6}, {.device = 8e6, .host = 4e6});
    drift.add(StepKind::kDecode, {.device = 8e6, .host = 2e6}, {.device = 7e6, .host = 2e6});
  }
  EXPECT_EQ(
      drift.describe(StepKind::kPrefill),
      "prefill steps take 20.0 % longer than predicted (12.000 ms for 10.000 ms, the mean of the last 64), "
      "most of it in the engine's own time");
  EXPECT_THAT(drift.describe(StepKind::kDecode), HasSubstr("decode steps take 10.0 % less than predicted"));
  EXPECT_THAT(drift.describe(StepKind::kDecode), HasSubstr("in the device's phases"));
}

TEST(AnswerLengths, AreThoseOfTheRecentAnswersThatWereLonger) {
  AnswerLengths lengths;
  EXPECT_EQ(lengths.expect(0, 100), 100U) << "nothing is known";
  lengths.add(10, false);
  lengths.add(20, false);
  lengths.add(60, false);
  EXPECT_EQ(lengths.expect(0, 100), 30U);
  EXPECT_EQ(lengths.expect(0, 30), 20U);  // 10, 20, 30
  EXPECT_EQ(lengths.expect(15, 100), 40U);
  EXPECT_EQ(lengths.expect(20, 100), 60U);
  EXPECT_EQ(lengths.expect(70, 1000), 141U) << "longer than all";
  EXPECT_EQ(lengths.expect(70, 100), 100U);
  EXPECT_EQ(lengths.expect(100, 100), 100U);
  lengths.add(50, true);                   // it would have gone on
  EXPECT_EQ(lengths.expect(0, 100), 48U);  // 10, 20, 60, 100
  EXPECT_EQ(lengths.expect(55, 100), 60U);
  for (size_t i = 0; i < AnswerLengths::kKept; ++i) lengths.add(5, false);
  EXPECT_EQ(lengths.expect(0, 100), 5U) << "older ones are forgotten";
}

backend::StepRecord decode_step(int64_t whole) {
  backend::StepRecord record;
  record.work.decoding = 4;
  record.compute = whole * 9 / 10;
  record.whole = whole;
  return record;
}

TEST(Shadow, WarnsOnceWhenItIsOff) {
  Shadow shadow([](const backend::StepWork&) { return StepCost{9e6, 1e6}; }, "fox", false);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 300; ++i) shadow.take(decode_step(10'300'000));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  testing::internal::CaptureStderr();
  for (int i = 0; i < 600; ++i) shadow.take(decode_step(12'000'000));
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("decode steps take"));
  EXPECT_THAT(said, HasSubstr("in the device's phases"));
  const std::string metrics = shadow.metrics_text();
  EXPECT_THAT(metrics, HasSubstr("quire:step_bias{kind=\"decode\",model_name=\"fox\"} -0.16666"));
  EXPECT_THAT(metrics, HasSubstr("quire:step_bias{kind=\"mixed\",model_name=\"fox\"} 0\n"));
  EXPECT_THAT(
      metrics,
      HasSubstr(
          "quire:predicted_step_seconds_total{kind=\"decode\",model_name=\"fox\",phase=\"device\"} 8."));
}

TEST(Shadow, CountsWhatItExtrapolatesAndWarnsOnce) {
  Shadow shadow(
      [](const backend::StepWork& work) {
        return StepCost{.device = 1e7, .host = 0, .is_extrapolated = work.decoding > 4};
      },
      "fox", false);
  testing::internal::CaptureStderr();
  for (int i = 0; i < 10; ++i) shadow.take(decode_step(10'000'000));
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  backend::StepRecord beyond = decode_step(10'000'000);
  beyond.work.decoding = 5;
  testing::internal::CaptureStderr();
  for (int i = 0; i < 3; ++i) shadow.take(beyond);
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::ranges::count(said, '\n'), 1) << said;
  EXPECT_THAT(said, HasSubstr("beyond what the cost model was fitted to"));
  const std::string metrics = shadow.metrics_text();
  EXPECT_THAT(metrics, HasSubstr("quire:extrapolated_steps_total{kind=\"decode\",model_name=\"fox\"} 3\n"));
  EXPECT_THAT(metrics, HasSubstr("quire:extrapolated_steps_total{kind=\"mixed\",model_name=\"fox\"} 0\n"));
}

/// An engine with a shadow to which each step takes 10 ms.
struct ShadowedEngine {
  explicit ShadowedEngine(bool promises)
      : shadow(
            [](const backend::StepWork&) {
              return StepCost{1e7, 0};
            },
            "fox", promises) {
    rig.engine.reset();
    engine = std::make_unique<Engine>(rig.config, rig.tokenizer, rig.executor, rig.clock, nullptr, nullptr,
                                      nullptr, nullptr, nullptr, &shadow);
  }
  test::EngineRig rig;
  Shadow shadow;
  std::unique_ptr<Engine> engine;
};

TEST(Shadow, ForetellsEachRequest) {
  ShadowedEngine with(false);
  EXPECT_TRUE(with.engine->foresees());
  EXPECT_FALSE(with.engine->promises());
  GenerationRequest request = test::EngineRig::request(8, 20);
  request.wants_outlook = true;
  ASSERT_TRUE(with.engine->submit(request, with.rig.ends.sink(1)));
  const RequestOutput last = with.rig.ends.wait(1);
  ASSERT_TRUE(last.foretold);
  EXPECT_GE(last.foretold->first_token, 10'000'000);
  EXPECT_LT(last.foretold->first_token, 5'000'000'000);
  EXPECT_EQ(last.foretold->end - last.foretold->first_token, 190'000'000);
  EXPECT_GT(last.foretold->real_first_token, 0);
  request.wants_outlook = false;
  ASSERT_TRUE(with.engine->submit(request, with.rig.ends.sink(2)));
  EXPECT_FALSE(with.rig.ends.wait(2).foretold);
  with.engine.reset();
  EXPECT_THAT(with.shadow.metrics_text(),
              HasSubstr("quire:ttft_prediction_error_seconds_count{model_name=\"fox\"} 2"));
  EXPECT_THAT(with.shadow.metrics_text(),
              HasSubstr("quire:e2e_prediction_error_seconds_count{model_name=\"fox\"} 2"));
}

TEST(Shadow, AnEngineThatPromisesRefusesWhatItCannotKeep) {
  ShadowedEngine with(true);
  EXPECT_TRUE(with.engine->promises());
  GenerationRequest request = test::EngineRig::request(8, 20);
  request.ttft_deadline = 1'000'000;
  ASSERT_TRUE(with.engine->submit(request, with.rig.ends.sink(1)));
  const RequestOutput refused = with.rig.ends.wait(1);
  ASSERT_TRUE(refused.error);
  EXPECT_EQ(refused.error->code, RequestErrorCode::kInvalid);  // a step alone takes longer
  EXPECT_EQ(refused.error->param, "ttft_deadline_ms");
  EXPECT_TRUE(refused.choices.empty());
  request.ttft_deadline = 60'000'000'000;
  ASSERT_TRUE(with.engine->submit(request, with.rig.ends.sink(2)));
  EXPECT_FALSE(with.rig.ends.wait(2).error);
  EXPECT_TRUE(with.engine->drain(20'000'000'000));
  with.engine.reset();
  const std::string metrics = with.shadow.metrics_text();
  EXPECT_THAT(metrics, HasSubstr("quire:admission_refused_total{model_name=\"fox\",reason=\"deadline\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("quire:deadlines_promised_total{model_name=\"fox\"} 1"));
  EXPECT_THAT(metrics, HasSubstr("quire:deadlines_kept_total{model_name=\"fox\"} 1"));
}

TEST(Shadow, BeamsAndTheBestOfManyAreForetoldToo) {
  ShadowedEngine with(false);
  GenerationRequest beams = test::EngineRig::request(8, 6);
  beams.wants_outlook = true;
  beams.beam_search = true;
  beams.n = 2;
  GenerationRequest best = test::EngineRig::request(8, 6);
  best.wants_outlook = true;
  best.best_of = 3;
  ASSERT_TRUE(with.engine->submit(beams, with.rig.ends.sink(1)));
  ASSERT_TRUE(with.engine->submit(best, with.rig.ends.sink(2)));
  for (const int name : {1, 2}) {
    const RequestOutput last = with.rig.ends.wait(name);
    EXPECT_FALSE(last.error);
    ASSERT_TRUE(last.foretold);
    EXPECT_EQ(last.choices.size(), name == 1 ? 2U : 1U);
  }
}

}  // namespace
}  // namespace quire::engine
