// Sliding windows: which blocks a sequence holds, and what it shares.
#include <algorithm>

#include <gmock/gmock.h>

#include "control/kv/windows.h"
#include "tests/control/driver.h"

namespace quire::test {
namespace {

using testing::ElementsAre;

control::SchedulerConfig windowed(uint32_t num_blocks, std::vector<uint32_t> windows, uint32_t budget = 8) {
  control::SchedulerConfig config = with_blocks(num_blocks, budget);
  config.kv_windows = std::move(windows);
  config.max_model_len = 100'000;
  return config;
}

TEST(KvWindows, Geometry) {
  for (uint32_t size = 1; size <= 5; ++size) {
    for (uint32_t count = 1; count <= 20; ++count) {
      uint32_t most = 0;
      for (uint32_t at = 0; at < size; ++at) most = std::max(most, (at + count - 1) / size - at / size + 1);
      EXPECT_EQ(control::blocks_touched(count, size), most) << count << " of " << size;
    }
    for (uint32_t window = 1; window <= 9; ++window) {
      for (uint32_t position = 0; position < 30; ++position) {
        const uint32_t key = position < window ? 0 : position - window + 1;
        EXPECT_EQ(control::first_block(window, position, size), key / size);
      }
    }
  }
  EXPECT_EQ(control::first_block(0, 1000, 16), 0U);
  const std::vector<uint32_t> windows = {0, 6};
  for (uint32_t blocks = 0; blocks < 40; ++blocks) {
    const uint64_t longest = control::longest_sequence(windows, blocks, 4, 1000);
    EXPECT_TRUE(longest == 0 || control::blocks_held(windows, longest, 1, 4) <= blocks);
    EXPECT_GT(control::blocks_held(windows, longest + 1, 1, 4), blocks);
  }
  EXPECT_EQ(control::longest_sequence(std::vector<uint32_t>{6}, 3, 4, 1'000'000), 1'000'000U);
}

TEST(SchedulerWindows, ALongSequenceHoldsNoMoreBlocksThanItsWindow) {
  for (const bool caching : {false, true}) {
    control::SchedulerConfig config = windowed(8, {12});
    config.enable_prefix_caching = caching;
    Driver driver(config);
    driver.add(a, text(500), 500);  // 250 blocks of text in a pool of 8
    uint32_t most = 0;
    uint32_t steps = 0;
    for (; driver.scheduler.has_work(); ++steps) {
      driver.step();
      most = std::max(most, driver.scheduler.stats().blocks_referenced);
    }
    EXPECT_LE(most, control::blocks_held(12, 1000, 1, 4));
    EXPECT_EQ(driver.scheduler.stats().blocks_referenced, 0U);
    EXPECT_LT(steps, 500U + 500U / 8 + 60U);  // nearly all chunks were whole
    EXPECT_EQ(driver.scheduler.stats().total_preemptions, 0U);
  }
}

TEST(SchedulerWindows, LayersThatSeeAllKeepTheirBlocks) {
  Driver driver(windowed(64, {0, 8}));
  driver.add(a, text(80), 20);
  while (driver.scheduler.has_work()) {
    driver.step();
    if (!driver.scheduler.has_work()) break;
    const uint32_t held = driver.scheduler.stats().blocks_referenced;
    const uint32_t rows = (driver.last().seqs[0].first_position +
                           static_cast<uint32_t>(driver.last().seqs[0].tokens.size()) + 3) /
                          4;
    EXPECT_GE(held, rows + std::min(rows, 2U));
    EXPECT_LE(held, rows + std::min(rows, 3U));
  }
}

TEST(SchedulerWindows, RefusesWhatCanNeverRun) {
  Driver driver(windowed(5, {0, 8}));  // three for the window, two for all
  EXPECT_TRUE(driver.scheduler.add(Driver::spec(a, text(8), 1)));
  const auto refused = driver.scheduler.add(Driver::spec(b, text(9), 2));
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, testing::HasSubstr("K/V memory of this server holds 9 tokens"));
  EXPECT_THROW(control::Scheduler(windowed(5, {})), Error);
}

TEST(SchedulerWindows, AHitTakesTheBlocksInsideTheWindow) {
  Driver driver(windowed(64, {0, 6}, 64));
  driver.add(a, text(33), 1);
  driver.step();
  EXPECT_EQ(driver.scheduler.stats().blocks_cached, 16U);
  driver.add(b, text(33), 1);
  EXPECT_EQ(driver.plan(), "-a +b b:32+1!");
  // Position 32 sees 27: of 8 rows the last two.
  const auto& blocks = driver.last().added[0].blocks;
  ASSERT_EQ(blocks.size(), 16U);
  EXPECT_EQ(std::count(blocks.begin(), blocks.begin() + 8, kNoBlock), 0);
  EXPECT_EQ(std::count(blocks.begin() + 8, blocks.end(), kNoBlock), 6);
  EXPECT_EQ(blocks[13], kNoBlock);
  EXPECT_NE(blocks[14], kNoBlock);
  driver.commit(driver.execute());
  ASSERT_EQ(driver.events.size(), 1U);
  EXPECT_EQ(driver.events[0].cached_tokens, 32U);
}

TEST(SchedulerWindows, APreemptedSequenceGoesOnFromWhatIsCached) {
  Driver driver(windowed(9, {6}, 64));
  driver.add(a, text(15), 20);
  driver.add(b, text(15, 100), 20);
  int steps = 0;
  for (; driver.scheduler.has_work() && steps < 200; ++steps) driver.step();
  EXPECT_LT(steps, 200);
}

TEST(SchedulerWindows, ForksShareTheWindow) {
  Driver driver(windowed(64, {0, 6}, 64));
  driver.add(a, text(32), 4);
  driver.fork(b, a, text(32), 4);
  EXPECT_EQ(driver.step(), "+a a:0+32!");
  EXPECT_EQ(driver.step(), "+b a:32+1! b:31+1!");
  // Position 31 sees 26; it is written to, so the last row is copied in both groups.
  EXPECT_EQ(driver.last().copies.size(), 2U);
  // Its copies became full with what the parent has published: they are one again.
  EXPECT_EQ(driver.scheduler.stats().blocks_shared, 8U + 2U);
}

TEST(SchedulerWindows, AForkThatComesTooLateComputes) {
  control::SchedulerConfig config = windowed(64, {6}, 64);
  config.max_num_seqs = 1;
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(32), 2);
  driver.fork(b, a, text(32), 1);
  EXPECT_EQ(driver.step(), "+a a:0+32!");
  EXPECT_EQ(driver.step(), "a:32+1!");
  EXPECT_EQ(driver.step(), "-a +b b:0+32!");
  // And while the parent runs, but has moved on:
  config.max_num_seqs = 2;
  config.num_blocks = 11;
  Driver crowded(config);
  crowded.add(a, text(32), 40);
  crowded.add(c, text(8, 500), 8);
  crowded.fork(b, a, text(32), 2);
  int steps = 0;
  for (; crowded.scheduler.has_work() && steps < 200; ++steps) crowded.step();
  EXPECT_LT(steps, 200);
  EXPECT_EQ(crowded.scheduler.stats().blocks_referenced, 0U);
}

}  // namespace
}  // namespace quire::test
