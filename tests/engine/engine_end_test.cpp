// How requests end before they are done, and the engine with them.
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <boost/json/parse.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/step_trace.h"
#include "tests/engine/inbox.h"
#include "tests/support/data.h"

namespace quire::engine {
namespace {

using test::expect_baseline;
using test::FakeExecutorConfig;
using test::Inbox;
using test::kSecond;
using test::kVocab;
using test::request_of;
using test::Rig;
using namespace std::chrono_literals;

TEST(Engine, AbortedBeamsLeaveNothing) {
  FakeExecutorConfig fake;
  fake.delay = 1'000'000;
  Rig rig(fake);
  Inbox inbox;
  GenerationRequest request = request_of(1, 20, 500);
  request.n = 4;
  request.beam_search = true;
  const auto id = rig.engine->submit(request, inbox.sink(0));
  ASSERT_TRUE(id);
  while (rig.engine->stats().generation_tokens < 50) std::this_thread::sleep_for(1ms);
  rig.engine->abort(*id);
  EXPECT_FALSE(inbox.wait(0).last.error);
  expect_baseline(*rig.engine);
}

TEST(Engine, AbortGivesTheBlocksBackAndDisturbsNobody) {
  FakeExecutorConfig fake;
  fake.delay = 1'000'000;
  Rig rig(fake);
  Inbox inbox;
  std::vector<RequestId> ids;
  for (int i = 0; i < 8; ++i) {
    const auto id = rig.engine->submit(request_of(i, 30, i % 2 == 0 ? 1000 - 30 : 20), inbox.sink(i));
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  inbox.wait_for_text(0);
  for (int i = 0; i < 8; i += 2) rig.engine->abort(ids[i]);
  rig.engine->abort(12345);  // no such request
  for (int i = 0; i < 8; ++i) {
    const Inbox::Answer answer = inbox.wait(i);
    EXPECT_EQ(answer.finish.at(0),
              i % 2 == 0 ? control::FinishReason::kAbort : control::FinishReason::kLength);
    EXPECT_FALSE(answer.last.error) << "who aborts knows why";
    if (i % 2 == 1) {
      EXPECT_EQ(answer.tokens.at(0).size(), 20U);
    }
  }
  expect_baseline(*rig.engine);
}

TEST(Engine, DrainFinishesWhatRunsAndRefusesTheRest) {
  FakeExecutorConfig fake;
  fake.delay = 500'000;
  Rig rig(fake);
  Inbox inbox;
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(rig.engine->submit(request_of(i, 8, 20), inbox.sink(i)));
  EXPECT_TRUE(rig.engine->drain(20 * kSecond));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(inbox.wait(i).finish.at(0), control::FinishReason::kLength);
  const auto late = rig.engine->submit(request_of(9, 8, 20), inbox.sink(9));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, RequestErrorCode::kShuttingDown);
}

TEST(Engine, DrainGivesUpAfterItsTime) {
  FakeExecutorConfig fake;
  fake.delay = 5'000'000;
  Rig rig(fake);
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(1, 8, 1000), inbox.sink(0)));
  EXPECT_FALSE(rig.engine->drain(kSecond / 50));
  const Inbox::Answer cut = inbox.wait(0);
  EXPECT_EQ(cut.finish.at(0), control::FinishReason::kAbort);
  ASSERT_TRUE(cut.last.error);
  EXPECT_EQ(cut.last.error->code, RequestErrorCode::kShuttingDown);
}

TEST(Engine, ADrainThatIsCutShortSaysSo) {
  FakeExecutorConfig fake;
  fake.delay = 5'000'000;
  Rig rig(fake);
  Inbox inbox;
  ASSERT_TRUE(rig.engine->submit(request_of(1, 8, 1000), inbox.sink(0)));
  std::thread patient(
      [&] { EXPECT_FALSE(rig.engine->drain(60 * kSecond)) << "the other aborted what it waited for"; });
  // What is refused shows that the patient one waits.
  while (rig.engine->submit(request_of(2, 8, 1), [](const RequestOutput&) {}))
    std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(rig.engine->drain(0));
  patient.join();
  EXPECT_EQ(inbox.wait(0).finish.at(0), control::FinishReason::kAbort);
}

TEST(Engine, DestructionEndsEveryRequest) {
  Inbox inbox;
  {
    FakeExecutorConfig fake;
    fake.delay = 1'000'000;
    Rig rig(fake);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(rig.engine->submit(request_of(i, 8, 1000), inbox.sink(i)));
  }
  for (int i = 0; i < 5; ++i) EXPECT_TRUE(inbox.wait(i).done);
}

TEST(Engine, AFailedSequenceDisturbsNobody) {
  FakeExecutorConfig fake;
  const test::NextToken hashed = test::hashed_continuation(kVocab);
  fake.next = [hashed](std::span<const TokenId> tokens, uint32_t prompt_length,
                       const SamplingParams& sampling) {
    return sampling.seed == 3 && tokens.size() == 20 ? -1 : hashed(tokens, prompt_length, sampling);
  };
  Rig rig(fake);
  Inbox inbox;
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(rig.engine->submit(request_of(i, 10, 30), inbox.sink(i)));
  for (int i = 0; i < 6; ++i) {
    const Inbox::Answer answer = inbox.wait(i);
    EXPECT_EQ(answer.finish.at(0), i == 3 ? control::FinishReason::kError : control::FinishReason::kLength);
    EXPECT_EQ(answer.last.error.has_value(), i == 3);
  }
  expect_baseline(*rig.engine);
}

/// Works for a while, then fails as a whole.
class BreakingExecutor final : public backend::Executor {
 public:
  explicit BreakingExecutor(backend::Executor& inner) : inner_(inner) {}
  backend::Ticket submit(const control::StepPlan& plan) override {
    if (++steps_ > 5) throw Error("the device is gone");
    return inner_.submit(plan);
  }
  void provide(backend::Ticket ticket, backend::TokenMasks& masks) override { inner_.provide(ticket, masks); }
  control::StepResult wait(backend::Ticket ticket) override { return inner_.wait(ticket); }

 private:
  backend::Executor& inner_;
  int steps_ = 0;
};

TEST(Engine, AFailedExecutorEndsAllAndRefusesMore) {
  Rig rig;
  BreakingExecutor breaking(rig.executor);
  Engine engine(rig.config, rig.tokenizer, breaking, rig.clock);
  Inbox inbox;
  std::vector<Expected<RequestId>> ids;
  for (int i = 0; i < 3; ++i) ids.push_back(engine.submit(request_of(i, 8, 100), inbox.sink(i)));
  for (int i = 0; i < 3; ++i) {
    if (!ids[i]) continue;  // it came after the failure
    const Inbox::Answer answer = inbox.wait(i);
    ASSERT_TRUE(answer.last.error);
    EXPECT_THAT(answer.last.error->message, testing::HasSubstr("the device is gone"));
  }
  const auto late = engine.submit(request_of(9, 8, 2), inbox.sink(9));
  ASSERT_FALSE(late);
  EXPECT_EQ(late.error().code, RequestErrorCode::kInternal);
}

TEST(Engine, AbortedSequencesHoldNoBlockInTheNextStep) {
  // Without sharing, the token places in use are the computed tokens of those that run: one that is gone and
  // still held blocks would show in the sum.
  const auto path = test::temp_dir() / "steps.jsonl";
  constexpr uint32_t kPrompt = 40;
  constexpr int kAll = 64;
  constexpr int kCut = 20;
  {
    StepTrace trace(path);
    control::SchedulerConfig scheduler;
    scheduler.enable_prefix_caching = false;
    scheduler.max_num_batched_tokens = kAll * kPrompt;
    Rig rig({.num_blocks = 1024, .delay = 1'000'000}, scheduler, &trace);
    Inbox inbox;
    std::vector<RequestId> ids;
    for (int i = 0; i < kAll; ++i) {
      ids.push_back(rig.engine->submit(request_of(i, kPrompt, 200), inbox.sink(i)).value());
    }
    while (rig.engine->stats().step.running < kAll) std::this_thread::sleep_for(1ms);
    for (int i = 0; i < kCut; ++i) rig.engine->abort(ids[3 * i]);
    for (int i = 0; i < kAll; ++i) inbox.wait(i);
    rig.engine.reset();
  }
  std::ifstream in(path);
  uint32_t steps = 0;
  uint32_t steps_after = 0;
  for (std::string line; std::getline(in, line);) {
    const auto step = boost::json::parse(line).as_object();
    const auto number = [&](const char* key) { return step.at(key).to_number<uint32_t>(); };
    ++steps;
    const uint32_t held = number("blocks_referenced") * 16 - number("slots_unused");
    EXPECT_LE(held, number("running") * (kPrompt + steps));
    if (number("running") != kAll - kCut) continue;
    ++steps_after;
    EXPECT_GE(held, (kAll - kCut) * kPrompt);
  }
  EXPECT_GT(steps_after, 100U);
}

}  // namespace
}  // namespace quire::engine
