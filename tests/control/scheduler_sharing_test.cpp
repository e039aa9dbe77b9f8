// Blocks in more than one table: prefix hits and forks. driver.h says how to read a plan.
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "control/scheduler.h"
#include "tests/control/driver.h"

namespace quire::test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// ---- prefix cache ----

TEST(Scheduler, ASecondSequenceHitsThePrefixOfTheFirst) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 1);
  driver.step();
  EXPECT_EQ(driver.events[0].cached_tokens, 0U);
  driver.add(b, text(10), 2);
  EXPECT_EQ(driver.step(), "-a +b b:8+2!");
  EXPECT_THAT(driver.last().added[0].blocks, ElementsAre(0, 1));
  EXPECT_EQ(driver.events[0].cached_tokens, 8U);
  driver.step();
  EXPECT_EQ(driver.events[0].cached_tokens, 0U);  // said once
  EXPECT_EQ(driver.scheduler.stats().total_prefix_queried_tokens, 20U);
  EXPECT_EQ(driver.scheduler.stats().total_prefix_hit_tokens, 8U);
}

TEST(Scheduler, AHitLeavesOneTokenToCompute) {
  Driver driver(with_blocks(16));
  driver.add(a, text(8), 1);
  driver.step();
  driver.add(b, text(8), 1);
  EXPECT_EQ(driver.step(), "-a +b b:4+4!");
}

TEST(Scheduler, GeneratedTokensAreCachedToo) {
  Driver driver(with_blocks(16));
  driver.add(a, text(3), 6);
  driver.told[a] = {10, 11, 12, 13, 14, 15};
  driver.steps(6);  // the last token is not computed: 8 are
  driver.add(b, {0, 1, 2, 10, 11, 12, 13, 14, 99}, 1);
  EXPECT_EQ(driver.step(), "-a +b b:8+1!");
}

TEST(Scheduler, OtherSaltsHitNothing) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 1);
  driver.step();
  control::SeqSpec spec = Driver::spec(b, text(10), 1);
  spec.salt = 1;
  driver.add(spec);
  EXPECT_EQ(driver.step(), "-a +b b:0+10!");
}

TEST(Scheduler, WithoutPrefixCachingNothingIsKept) {
  control::SchedulerConfig config = with_blocks(16);
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(10), 1);
  driver.step();
  EXPECT_EQ(driver.scheduler.stats().blocks_cached, 0U);
  driver.add(b, text(10), 1);
  EXPECT_EQ(driver.step(), "-a +b b:0+10!");
  EXPECT_EQ(driver.scheduler.stats().total_prefix_queried_tokens, 0U);
}

TEST(Scheduler, AResetForgetsWhatNobodyHolds) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 1);
  driver.step();
  EXPECT_EQ(driver.scheduler.stats().blocks_cached, 2U);
  driver.scheduler.pool().drop_cached();
  driver.add(b, text(10), 1);
  EXPECT_EQ(driver.step(), "-a +b b:0+10!");
}

TEST(Scheduler, EqualPromptsComputedAtOnceAreKeptOnce) {
  Driver driver(with_blocks(16));
  driver.add(a, text(4), 4);  // their last token is computed in any case, and so the block is
  driver.add(b, text(4), 4);
  EXPECT_EQ(driver.step(), "+a +b a:0+4! b:0+4!");
  EXPECT_EQ(driver.scheduler.stats().blocks_referenced, 1U);
  EXPECT_EQ(driver.scheduler.stats().blocks_shared, 1U);
  EXPECT_EQ(driver.scheduler.stats().blocks_saved, 1U);
  EXPECT_EQ(driver.step(), "a:4+1! b:4+1!");
  EXPECT_THAT(driver.last().updates, ElementsAre(control::TableUpdate{1, 0, 0}));
  EXPECT_THAT(driver.last().copies, IsEmpty());
}

TEST(Scheduler, BlocksThatAHitTakesAreNoLongerFree) {
  Driver driver(with_blocks(8));
  driver.add(a, text(17), 1);  // leaves 4 blocks cached
  driver.step();
  driver.add(b, text(12, 100), 4);  // 3 of the 4 free ones
  driver.step();
  // 1 free + 4 cached: c needs one new block and holds the cached ones, exactly what is there.
  driver.add(c, text(17), 1);
  // b decodes into its fourth block first. So c has to wait.
  EXPECT_EQ(driver.step(), "b:12+1!");
  driver.scheduler.abort(b);
  EXPECT_EQ(driver.step(), "-b +c c:16+1!");
}

// ---- prompts that are equal, and arrive together ----

TEST(Scheduler, EqualPromptsAreComputedOnce) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 3);
  driver.add(b, text(10), 3);
  driver.add(c, {0, 1, 2, 3, 99, 98}, 3);  // only the first block is the same
  EXPECT_EQ(driver.step(), "+a a:0+10!");
  EXPECT_EQ(driver.scheduler.stats().waiting, 2U);
  EXPECT_EQ(driver.step(), "+b +c a:10+1! b:8+2! c:4+2!");
  EXPECT_EQ(driver.scheduler.stats().total_prefix_hit_tokens, 12U);
}

TEST(Scheduler, AFollowerIsPassedOver) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 3);
  driver.add(b, text(10), 3);
  driver.add(c, text(6, 100), 3);
  EXPECT_EQ(driver.step(), "+a +c a:0+10! c:0+6!");
  EXPECT_EQ(driver.step(), "+b a:10+1! c:6+1! b:8+2!");
}

TEST(Scheduler, ASlotIsKeptForEachFollower) {
  Driver driver(with_blocks(32));
  for (const SeqId id : {a, b, c}) driver.add(id, text(10), 3);
  driver.add(d, text(6, 100), 3);
  EXPECT_EQ(driver.step(), "+a +d a:0+10! d:0+6!");
  EXPECT_EQ(driver.step(), "+b +c a:10+1! d:6+1! b:8+2! c:8+2!");

  control::SchedulerConfig config = with_blocks(32);
  config.max_num_seqs = 3;
  Driver full(config);
  for (const SeqId id : {a, b, c}) full.add(id, text(10), 3);
  full.add(d, text(6, 100), 3);
  EXPECT_EQ(full.step(), "+a a:0+10!");
  EXPECT_EQ(full.step(), "+b +c a:10+1! b:8+2! c:8+2!");
}

TEST(Scheduler, AFollowerWaitsUntilTheLastSharedBlockIsComputed) {
  Driver driver(with_blocks(16, 8));
  driver.add(a, text(18), 3);
  driver.add(b, text(18), 3);
  EXPECT_EQ(driver.step(), "+a a:0+8");
  EXPECT_EQ(driver.step(), "a:8+8");
  EXPECT_EQ(driver.step(), "+b a:16+2! b:16+2!");  // neither fills the next block
}

TEST(Scheduler, AFollowerWaitsForTheResultAndNotForThePlan) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 4);
  driver.add(b, text(10), 4);
  driver.plan();
  const control::StepPlan first = driver.last();
  control::StepResult result = driver.execute();
  EXPECT_EQ(driver.plan(), "a:10+1!");  // the result of the first is open
  driver.scheduler.commit(first, std::move(result));
  driver.commit(driver.execute());
  EXPECT_EQ(driver.step(), "+b a:11+1! b:8+2!");
}

TEST(Scheduler, NobodyFollowsWhatIsNotItsOwnPrefix) {
  control::SchedulerConfig without = with_blocks(16);
  without.enable_prefix_caching = false;
  Driver off(without);
  off.add(a, text(10), 1);
  off.add(b, text(10), 1);
  EXPECT_EQ(off.step(), "+a +b a:0+10! b:0+10!");

  Driver driver(with_blocks(16));
  driver.add(a, text(10), 1);
  control::SeqSpec salted = Driver::spec(b, text(10), 1);
  salted.salt = 1;
  driver.add(salted);
  driver.add(c, text(4), 1);  // its only block has its last token, which it computes in any case
  EXPECT_EQ(driver.step(), "+a +b +c a:0+10! b:0+10! c:0+4!");
}

TEST(Scheduler, AFollowerComputesItselfWhatIsLost) {
  Driver driver(with_blocks(16, 8));
  driver.add(a, text(18), 3);
  driver.add(b, text(18), 3);
  EXPECT_EQ(driver.step(), "+a a:0+8");
  driver.scheduler.abort(a);
  EXPECT_EQ(driver.step(), "-a +b b:8+8");  // the first two blocks are cached
  driver.plan();
  control::StepResult failed;
  failed.seqs.emplace_back().error = "a NaN";
  driver.add(c, text(18), 3);
  driver.commit(std::move(failed));
  EXPECT_EQ(driver.step(), "-b +c c:16+2!");
}

TEST(Scheduler, AStaticBatchTakesItsFollowers) {
  control::SchedulerConfig config = with_blocks(16);
  config.batching = control::BatchingKind::kStatic;
  Driver driver(config);
  driver.add(a, text(10), 4);
  driver.add(b, text(10), 4);
  EXPECT_EQ(driver.step(), "+a a:0+10!");
  driver.add(c, text(6, 100), 4);
  EXPECT_EQ(driver.step(), "+b +c a:10+1! b:8+2! c:0+6!");
  driver.add(d, text(6, 200), 4);
  EXPECT_EQ(driver.step(), "a:11+1! b:10+1! c:6+1!");
}

// ---- forks ----

TEST(Scheduler, AForkSharesItsParentsBlocksAndCopiesThePartlyFilledOne) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 5);
  driver.fork(b, a, text(10), 5);
  driver.fork(c, a, text(10), 5);
  EXPECT_EQ(driver.step(), "+a a:0+10!");
  EXPECT_EQ(driver.step(), "+b +c a:10+1! b:9+1! c:9+1!");
  EXPECT_THAT(driver.last().added[0].blocks, ElementsAre(0, 1, 2));
  EXPECT_THAT(driver.last().copies, ElementsAre(control::BlockCopy{2, 3}, control::BlockCopy{2, 4}));
  EXPECT_THAT(driver.last().updates,
              ElementsAre(control::TableUpdate{1, 2, 3}, control::TableUpdate{2, 2, 4}));
  EXPECT_EQ(driver.events[1].cached_tokens, 9U);
  const control::StepStats& stats = driver.scheduler.stats();
  EXPECT_EQ(stats.blocks_referenced, 5U);
  EXPECT_EQ(stats.blocks_shared, 2U);
  EXPECT_EQ(stats.blocks_saved, 4U);
  EXPECT_EQ(stats.slots_unused, 1U + 2U + 2U);
  EXPECT_EQ(stats.copies, 2U);
  EXPECT_EQ(stats.total_copies, 2U);
}

TEST(Scheduler, AForkOnABlocksBorderCopiesNothing) {
  Driver driver(with_blocks(16));
  driver.add(a, text(9), 5);
  driver.fork(b, a, text(9), 5);
  driver.step();
  EXPECT_EQ(driver.step(), "+b a:9+1! b:8+1!");
  EXPECT_THAT(driver.last().added[0].blocks, ElementsAre(0, 1));
  EXPECT_THAT(driver.last().copies, IsEmpty());
}

TEST(Scheduler, AForkThatWaitsForItsParentIsPassedOver) {
  Driver driver(with_blocks(16, 8));
  driver.add(a, text(13), 5);
  driver.fork(b, a, text(13), 5);
  driver.step();
  driver.add(c, text(2, 100), 5);
  EXPECT_EQ(driver.step(), "+c a:8+5! c:0+2!");
  EXPECT_EQ(driver.step(), "+b a:13+1! c:2+1! b:12+1!");
}

TEST(Scheduler, AForkWorksWithoutPrefixCaching) {
  control::SchedulerConfig config = with_blocks(16);
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(8), 5);
  driver.fork(b, a, text(8), 5);
  driver.step();
  EXPECT_EQ(driver.step(), "+b a:8+1! b:7+1!");
  EXPECT_THAT(driver.last().copies, ElementsAre(control::BlockCopy{1, 3}));
}

TEST(Scheduler, AForkWhoseParentHasEndedIsAnOrdinarySequence) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 1);
  driver.fork(b, a, text(10), 2);
  driver.step();
  EXPECT_EQ(driver.step(), "-a +b b:8+2!");  // by a prefix hit
  driver.fork(c, a, text(10), 2);            // ended before it came
  EXPECT_EQ(driver.step(), "+c b:10+1! c:8+2!");
}

TEST(Scheduler, AForkWaitsWhileItsParentIsPreempted) {
  control::SchedulerConfig config = with_blocks(4, 9);
  config.enable_prefix_caching = false;
  Driver driver(config);
  driver.add(a, text(7), 8);
  driver.add(b, text(7, 100), 8);
  EXPECT_EQ(driver.step(), "+a +b a:0+7! b:0+2");
  driver.fork(c, b, text(7, 100), 8);
  EXPECT_EQ(driver.step(), "a:7+1! b:2+5!");
  EXPECT_EQ(driver.step(), "-b a:8+1!");
  EXPECT_EQ(driver.scheduler.stats().waiting, 2U);
  driver.scheduler.abort(a);
  EXPECT_EQ(driver.step(), "-a +b b:0+8!");
  EXPECT_EQ(driver.step(), "+c b:8+1! c:6+1!");
}

TEST(Scheduler, APreemptedForkFindsItsOwnTokensToo) {
  Driver driver(with_blocks(9));
  driver.add(a, text(5), 20);
  driver.fork(b, a, text(5), 20);
  driver.add(c, text(5, 100), 20);
  EXPECT_EQ(driver.step(), "+a +c a:0+5! c:0+5!");
  EXPECT_EQ(driver.step(), "+b a:5+1! c:5+1! b:4+1!");
  driver.steps(6);
  EXPECT_EQ(driver.step(), "-b a:12+1! c:12+1!");
  driver.scheduler.abort(c);
  EXPECT_EQ(driver.step(), "-c +b a:13+1! b:8+4!");  // not only the 4 tokens that a could share
}

TEST(Scheduler, AForkMustHaveItsParentsPrompt) {
  Driver driver(with_blocks(16));
  driver.add(a, text(10), 5);
  control::SeqSpec other_prompt = Driver::spec(b, text(10, 1), 5);
  other_prompt.fork_of = a;
  EXPECT_EQ(driver.scheduler.add(other_prompt).error().code, RequestErrorCode::kInternal);
  control::SeqSpec other_salt = Driver::spec(b, text(10), 5);
  other_salt.fork_of = a;
  other_salt.salt = 1;
  EXPECT_EQ(driver.scheduler.add(other_salt).error().code, RequestErrorCode::kInternal);
  control::SeqSpec itself = Driver::spec(b, text(10, 50), 5);
  itself.fork_of = b;
  driver.add(itself);
  EXPECT_EQ(driver.step(), "+a +b a:0+10! b:0+10!");
}

}  // namespace
}  // namespace quire::test
