// What Engine::watch reports, and to whom.
#include <chrono>
#include <functional>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "engine/engine.h"
#include "record/run_tap.h"
#include "tests/engine/engine_rig.h"

namespace quire::engine {
namespace {

bool wait_until(const std::function<bool()>& holds) {
  for (int i = 0; i < 5000; ++i) {
    if (holds()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

size_t events_of(const record::RunTap::Batch& batch) {
  size_t events = 0;
  batch.for_each([&](const record::RunEvent&) { ++events; }, [](BlockId, uint32_t) {});
  return events;
}

TEST(Watch, ReportsUntilNobodyWatchesAnyMore) {
  test::EngineRig rig;
  const auto tap = std::make_shared<record::RunTap>();
  rig.engine->watch(tap);
  ASSERT_TRUE(wait_until([&] { return tap->take().start.has_value(); }));
  ASSERT_TRUE(rig.engine->submit(test::EngineRig::request(), rig.ends.sink(1)));
  rig.ends.wait(1);
  EXPECT_GT(events_of(tap->take()), 20U) << "a plan and a result for each of 20 tokens";

  rig.engine->watch(nullptr);
  ASSERT_TRUE(wait_until([&] { return tap.use_count() == 1; })) << "the engine lets go of it";
  (void)tap->take();
  ASSERT_TRUE(rig.engine->submit(test::EngineRig::request(), rig.ends.sink(2)));
  rig.ends.wait(2);
  const record::RunTap::Batch nothing = tap->take();
  EXPECT_FALSE(nothing.start.has_value());
  EXPECT_EQ(events_of(nothing), 0U);
  rig.expect_well();
}

}  // namespace
}  // namespace quire::engine
