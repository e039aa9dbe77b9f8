// Where there is no memory at all, requests are aborted and dropped all the same.
#include <chrono>
#include <filesystem>
#include <memory>
#include <new>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "engine/step_trace.h"
#include "record/run_record.h"
#include "tests/engine/engine_rig.h"

namespace quire::engine {
namespace {

using namespace std::chrono_literals;
using test::allocations_left;
using test::EngineRig;

TEST(NoMemory, AnAbortNeedsNone) {
  if (!QUIRE_ALLOCATIONS_FAIL) GTEST_SKIP() << "sanitizers keep their own allocator";
  constexpr uint64_t kRequests = 100;
  EngineRig rig;
  rig.executor.set_delay(100'000'000);  // all are there while they run
  std::vector<RequestId> ids;
  for (uint64_t i = 0; i < kRequests; ++i) {
    const auto id = rig.engine->submit(EngineRig::request(8, 1000), rig.ends.sink(i));
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  bool thrown = false;
  allocations_left = 0;
  try {
    for (const RequestId id : ids) rig.engine->abort(id);
    for (const RequestId id : ids) rig.engine->abort(id);
    rig.engine->abort(ids.back() + 1);
  } catch (...) {
    thrown = true;
  }
  allocations_left = -1;
  EXPECT_FALSE(thrown) << "an abort is asked for in destructors";
  rig.executor.set_delay(0);
  for (uint64_t i = 0; i < kRequests; ++i) {
    for (const ChoiceOutput& choice : rig.ends.wait(i).choices)
      EXPECT_EQ(choice.finish, control::FinishReason::kAbort);
  }
  for (const RequestId id : ids) rig.engine->abort(id);  // of what has ended
  rig.expect_well();
}

/// Forms of a request and of the engine: the bookkeeping of each is undone without memory.
class Drop : public testing::TestWithParam<std::tuple<control::EvictionKind, uint32_t, bool>> {};
INSTANTIATE_TEST_SUITE_P(NoMemory, Drop,
                         testing::Combine(testing::ValuesIn(control::kEvictionKinds), testing::Values(1, 3),
                                          testing::Bool()));

TEST_P(Drop, TakesItsSequencesOutOfEverything) {
  if (!QUIRE_ALLOCATIONS_FAIL) GTEST_SKIP() << "sanitizers keep their own allocator";
  const auto [eviction, n, beams] = GetParam();
  EngineRig rig;
  rig.config.scheduler.eviction = eviction;
  rig.config.scheduler.scheduling = control::SchedulingKind::kFair;
  rig.config.max_waiting_per_tenant = 8;
  record::RunWriter record("/dev/null");
  rig.engine =
      std::make_unique<Engine>(rig.config, rig.tokenizer, rig.executor, rig.clock, nullptr, nullptr, &record);
  for (uint64_t i = 0; i < 10; ++i) {
    GenerationRequest request = EngineRig::request(100, 200);
    request.n = beams ? std::max(n, 2U) : n;
    request.beam_search = beams;
    request.waits_as = 7;
    auto calls = std::make_shared<int>(0);
    // Of beams only the end is news.
    const int bad_call = beams ? 1 : 3;
    const auto submitted =
        rig.engine->submit(std::move(request), [&rig, i, calls, bad_call](RequestOutput output) {
          if (++*calls == bad_call) {
            allocations_left = 0;  // of the engine's thread, until the sink hears of the end
            throw std::bad_alloc();
          }
          if (*calls > bad_call) allocations_left = -1;
          rig.ends.put(i, std::move(output));
        });
    ASSERT_TRUE(submitted);
    const RequestOutput end = rig.ends.wait(i);
    ASSERT_TRUE(end.error);
    EXPECT_EQ(end.error->message, "out of memory");
  }
  rig.expect_well();
  rig.engine.reset();
  EXPECT_FALSE(record.failed());
}

/// Nothing can be saved, for want of memory.
class FailingStart final : public WarmStart {
 public:
  std::vector<record::PrefixNode> load() override { throw std::bad_alloc(); }
  void fill(const std::vector<record::PrefixNode>& /*nodes*/) override {}
  void save(const std::vector<record::PrefixNode>& /*nodes*/) override { throw std::bad_alloc(); }
};

TEST(NoMemory, TheEngineEndsThoughNothingCanBeWritten) {
  if (!QUIRE_ALLOCATIONS_FAIL) GTEST_SKIP() << "sanitizers keep their own allocator";
  EngineRig rig;
  StepTrace trace("/dev/full");
  record::RunWriter record("/dev/null");
  FailingStart warm;
  testing::internal::CaptureStderr();
  rig.engine = std::make_unique<Engine>(rig.config, rig.tokenizer, rig.executor, rig.clock, &trace, nullptr,
                                        &record, &warm);
  rig.executor.set_delay(1'000'000);
  ASSERT_TRUE(rig.engine->submit(EngineRig::request(8, 1000), [&rig](RequestOutput output) {
    const bool done = output.done;
    rig.ends.put(1, std::move(output));
    if (done) allocations_left = 0;  // of the engine's thread, for good
  }));
  while (rig.engine->stats().generation_tokens == 0) std::this_thread::sleep_for(1ms);
  rig.engine.reset();
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_NE(told.find("the prefix cache starts empty: out of memory"), std::string::npos) << told;
  EXPECT_NE(told.find("/dev/full: cannot be written any more: the step trace is cut off"), std::string::npos)
      << told;
  EXPECT_NE(told.find("the prefix cache is not saved"), std::string::npos) << told;
  EXPECT_EQ(told.find("bad_alloc"), std::string::npos) << told;
}

}  // namespace
}  // namespace quire::engine
