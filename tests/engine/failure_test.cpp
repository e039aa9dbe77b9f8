// What is thrown while a request comes in or its news goes out ends that request, and nobody else notices.
#include <atomic>
#include <filesystem>
#include <memory>
#include <new>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <tuple>
#include <utility>

#include <gtest/gtest.h>

#include "engine/end_rate.h"
#include "engine/tenant_queues.h"
#include "tests/engine/engine_rig.h"
#include "tests/support/units.h"

namespace quire::engine {
namespace {

using namespace std::chrono_literals;
using test::Ends;
using test::EngineRig;
using test::failed_allocations;
using test::failing_size;
using test::kSecond;

TEST(EngineFailure, ASinkThatThrowsOnceHearsTheErrorNext) {
  EngineRig rig;
  auto calls = std::make_shared<std::atomic<int>>(0);
  ASSERT_TRUE(rig.engine->submit(EngineRig::request(8, 1000), [&rig, calls](RequestOutput output) {
    if (++*calls == 3) throw std::runtime_error("the sink broke");
    rig.ends.put(1, std::move(output));
  }));
  ASSERT_TRUE(rig.engine->submit(EngineRig::request(), rig.ends.sink(2)));
  const RequestOutput end = rig.ends.wait(1);
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->code, RequestErrorCode::kInternal);
  EXPECT_EQ(end.error->message, "the sink broke");
  EXPECT_EQ(*calls, 4);
  EXPECT_FALSE(rig.ends.wait(2).error);
  rig.expect_well();
}

TEST(EngineFailure, AnErrorOfAFileIsToldInPlainWords) {
  EngineRig rig;
  auto thrown = std::make_shared<bool>(false);
  ASSERT_TRUE(rig.engine->submit(EngineRig::request(), [&rig, thrown](RequestOutput output) {
    if (!std::exchange(*thrown, true)) {
      throw std::filesystem::filesystem_error("cannot read", "/a/b",
                                              std::make_error_code(std::errc::io_error));
    }
    rig.ends.put(1, std::move(output));
  }));
  const RequestOutput end = rig.ends.wait(1);
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->message, "/a/b: Input/output error");
  rig.expect_well();
}

TEST(EngineFailure, ASinkThatThrowsAlwaysIsLeftAlone) {
  EngineRig rig;
  auto calls = std::make_shared<std::atomic<int>>(0);
  const auto broken = [calls](const RequestOutput&) {
    ++*calls;
    throw std::bad_alloc();
  };
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(rig.engine->submit(EngineRig::request(), broken));
  // Its only news is its end.
  GenerationRequest best = EngineRig::request();
  best.best_of = 2;
  ASSERT_TRUE(rig.engine->submit(best, broken));
  rig.expect_well();
  EXPECT_EQ(*calls, 5 * 3 + 2) << "each end is tried twice";
}

TEST(EngineFailure, ASinkThatThrowsAtTheEndHearsOfItAgain) {
  EngineRig rig;
  GenerationRequest best = EngineRig::request();
  best.best_of = 2;  // its only news is its end
  auto calls = std::make_shared<std::atomic<int>>(0);
  ASSERT_TRUE(rig.engine->submit(best, [&rig, calls](RequestOutput output) {
    if (++*calls == 1) throw std::runtime_error("the sink broke");
    rig.ends.put(1, std::move(output));
  }));
  const RequestOutput end = rig.ends.wait(1);
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->message, "the sink broke");
  EXPECT_EQ(*calls, 2);
  rig.expect_well();
}

TEST(EngineFailure, WantOfMemoryForARequestEndsItAlone) {
  if (!QUIRE_ALLOCATIONS_FAIL) GTEST_SKIP() << "sanitizers keep their own allocator";
  EngineRig rig;
  constexpr uint32_t kLength = 777;
  for (const bool beams : {false, true}) {
    GenerationRequest request = EngineRig::request(kLength);
    request.beam_search = beams;
    request.n = beams ? 2 : 1;
    const int failed_before = failed_allocations;
    failing_size = kLength * sizeof(TokenId);  // copies of the prompt
    ASSERT_TRUE(rig.engine->submit(std::move(request), rig.ends.sink(beams ? 2 : 1)));
    const RequestOutput end = rig.ends.wait(beams ? 2 : 1);
    failing_size = 0;
    EXPECT_GT(failed_allocations, failed_before);
    ASSERT_TRUE(end.error);
    EXPECT_EQ(end.error->code, RequestErrorCode::kInternal);
    EXPECT_EQ(end.error->message, "out of memory") << "no name of C++'s";
  }
  rig.expect_well();
}

/// What fails while all requests end: the list of them, and the list of those with news at its growth. There
/// are so many that no list of a step, which may be made at any moment before, is as long.
class EndOfAll : public testing::TestWithParam<std::tuple<size_t, bool>> {
 protected:
  static constexpr int kRequests = 600;
};
INSTANTIATE_TEST_SUITE_P(Memory, EndOfAll,
                         testing::Combine(testing::Values(600 * sizeof(void*), 1024 * sizeof(void*)),
                                          testing::Bool()));

TEST_P(EndOfAll, IsToldWithoutMemoryAndLeavesNothing) {
  if (!QUIRE_ALLOCATIONS_FAIL) GTEST_SKIP() << "sanitizers keep their own allocator";
  const auto [size, beams] = GetParam();
  EngineRig rig;
  rig.executor.set_delay(200'000'000);
  std::atomic<int> ends = 0;
  for (int i = 0; i < kRequests; ++i) {
    GenerationRequest request = EngineRig::request(8, 500);
    request.beam_search = beams;
    request.n = beams ? 2 : 1;
    ASSERT_TRUE(rig.engine->submit(std::move(request), [&ends](const RequestOutput& output) {
      if (output.done) ++ends;
    }));
  }
  const auto sequences = [&] { return rig.engine->stats().step.running + rig.engine->stats().step.waiting; };
  while (sequences() < kRequests) std::this_thread::sleep_for(1ms);
  const int failed_before = failed_allocations;
  failing_size = size;
  EXPECT_FALSE(rig.engine->drain(0));
  failing_size = 0;
  EXPECT_GT(failed_allocations, failed_before);
  EXPECT_EQ(ends, kRequests);
  EXPECT_EQ(sequences(), 0U) << "sequences that nobody waits for";
  EXPECT_EQ(rig.engine->stats().step.blocks_referenced, 0U);
  EXPECT_EQ(rig.engine->failure(), "");
}

TEST(EngineFailure, AnErrorThatCannotBeCopiedEndsTheRequestsAllTheSame) {
  if (!QUIRE_ALLOCATIONS_FAIL) GTEST_SKIP() << "sanitizers keep their own allocator";
  constexpr size_t kLength = 5000;
  test::LetterTokenizer tokenizer(EngineRig::kVocab);
  test::FakeExecutor executor(
      {.num_blocks = 256,
       .vocab_size = EngineRig::kVocab,
       .next = [](std::span<const TokenId>, uint32_t, const SamplingParams&) -> TokenId {
         const std::runtime_error error(std::string(kLength, 'x'));
         failing_size = kLength + 1;  // copies of the text
         throw error;
       }});
  SteadyClock clock;
  EngineConfig config;
  config.scheduler.num_blocks = 256;
  config.scheduler.max_model_len = 1024;
  config.vocab_size = EngineRig::kVocab;
  Ends ends;
  Engine engine(config, tokenizer, executor, clock);
  const int failed_before = failed_allocations;
  ASSERT_TRUE(engine.submit(EngineRig::request(), ends.sink(1)));
  const RequestOutput end = ends.wait(1);
  failing_size = 0;
  EXPECT_GT(failed_allocations, failed_before);
  ASSERT_TRUE(end.error);
  EXPECT_EQ(end.error->message, "out of memory");
  EXPECT_EQ(engine.failure(), "The engine has failed: out of memory");
}

// ---- Who waits, and how fast the queue moves ----

TEST(TenantQueues, CountWhatWaitsOfEach) {
  TenantQueues queues;
  TenantQueues::Tenant& seventh = queues.find(7);
  queues.arrive(seventh, 3);  // submitted, of two requests
  queues.arrive(queues.find(8), 1);
  queues.leave_inbox(seventh, 3);
  queues.add(1, seventh);
  queues.add(2, seventh);
  queues.settle();
  EXPECT_EQ(queues.count(7), 2U);
  EXPECT_EQ(queues.count(8), 1U) << "still in the inbox";
  queues.admit(1);
  queues.settle();
  EXPECT_EQ(queues.count(7), 1U);
  queues.preempt(1);
  queues.admit(99);  // nobody's
  queues.settle();
  EXPECT_EQ(queues.count(7), 2U);
  queues.admit(1);
  queues.remove(1);  // ran
  queues.remove(2);  // waited
  queues.remove(2);
  queues.settle();
  EXPECT_EQ(queues.count(7), 0U);
}

TEST(EndRate, IsOfTheLastEnds) {
  EndRate rate;
  rate.begin(100 * kSecond);
  EXPECT_DOUBLE_EQ(rate.per_second(110 * kSecond), 0.1) << "as if one ended now";
  for (int i = 1; i <= 9; ++i) rate.end((100 + i) * kSecond);
  EXPECT_DOUBLE_EQ(rate.per_second(110 * kSecond), 1.0);
  for (size_t i = 0; i < EndRate::kKept; ++i) rate.end(200 * kSecond + static_cast<Nanos>(i) * kSecond / 4);
  EXPECT_DOUBLE_EQ(rate.per_second(216 * kSecond), 4.0) << "what was long ago is forgotten";
  EXPECT_DOUBLE_EQ(rate.per_second(264 * kSecond), 1.0) << "nothing ends any more";
  rate.begin(300 * kSecond);
  EXPECT_DOUBLE_EQ(rate.per_second(301 * kSecond), 1.0);
}

TEST(Engine, WhatGoesOnIsTakenWhileItDrains) {
  EngineRig rig;
  rig.executor.set_delay(5'000'000);
  const auto first = rig.engine->submit(EngineRig::request(8, 1000), rig.ends.sink(1));
  ASSERT_TRUE(first);
  std::thread drain([&] { EXPECT_TRUE(rig.engine->drain(60'000'000'000)); });
  // Refused once the drain has begun, and the first request lasts until that.
  for (int name = 10;; ++name) {
    const auto fresh = rig.engine->submit(EngineRig::request(8, 1), rig.ends.sink(name));
    if (fresh) {
      std::this_thread::sleep_for(1ms);
      continue;
    }
    EXPECT_EQ(fresh.error().code, RequestErrorCode::kShuttingDown);
    break;
  }
  GenerationRequest more = EngineRig::request();
  more.goes_on = true;
  EXPECT_TRUE(rig.engine->submit(more, rig.ends.sink(2)));
  rig.engine->abort(*first);
  drain.join();
  EXPECT_FALSE(rig.ends.wait(2).error);
  EXPECT_FALSE(rig.engine->submit(more, rig.ends.sink(3))) << "it is over";
}

TEST(Engine, ATenantsPartOfTheQueueIsBounded) {
  test::LetterTokenizer tokenizer(EngineRig::kVocab);
  test::FakeExecutor executor({.max_slots = 2, .vocab_size = EngineRig::kVocab, .delay = 10'000'000});
  SteadyClock clock;
  EngineConfig config;
  config.scheduler.num_blocks = 256;
  config.scheduler.max_model_len = 1024;
  config.scheduler.max_num_seqs = 2;
  config.scheduler.max_waiting = 9;
  config.max_waiting_per_tenant = 3;
  config.vocab_size = EngineRig::kVocab;
  config.check_invariants = true;
  Ends ends;
  Engine engine(config, tokenizer, executor, clock);
  std::vector<RequestId> accepted;
  const auto accepted_of = [&](uint64_t tenant, int tries) {
    const size_t before = accepted.size();
    for (int i = 0; i < tries; ++i) {
      GenerationRequest request = EngineRig::request(8, 1000);  // it ends only by an abort
      request.waits_as = tenant;
      if (auto id = engine.submit(request, ends.sink(static_cast<int>(accepted.size())))) {
        accepted.push_back(*id);
      } else {
        EXPECT_EQ(id.error().code, RequestErrorCode::kQueueFull);
      }
    }
    return accepted.size() - before;
  };
  EXPECT_EQ(accepted_of(1, 20), 5) << "two run";
  while (engine.stats().step.running < 2 || engine.stats().step.waiting < 3) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(accepted_of(1, 5), 0);
  EXPECT_EQ(accepted_of(2, 20), 3);
  EXPECT_EQ(accepted_of(3, 20), 3) << "until the whole queue is full";
  EXPECT_GE(engine.retry_after(), 1U);
  GenerationRequest wide = EngineRig::request();
  wide.n = 6;
  const auto never = engine.submit(wide, ends.sink(1000));
  ASSERT_FALSE(never);
  EXPECT_EQ(never.error().code, RequestErrorCode::kInvalid) << "later would not help";
  for (const RequestId id : accepted) engine.abort(id);
  for (size_t i = 0; i < accepted.size(); ++i) EXPECT_FALSE(ends.wait(static_cast<int>(i)).error) << i;
  while (engine.stats().step.running + engine.stats().step.waiting > 0) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(accepted_of(1, 20), 5) << "all places are free again";
}

}  // namespace
}  // namespace quire::engine
