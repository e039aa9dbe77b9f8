#include "control/block_table.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class BlockTableTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(pool_.check_invariants(), ""); }

  BlockPool pool_{PrefixCache(4, 4, make_lru_eviction(4))};
  BlockTable a_, b_;
  std::vector<BlockCopy> copies_;
};

TEST_F(BlockTableTest, GrowsByWhatIsWritten) {
  a_.prepare_write(pool_, 0, 4, copies_);
  EXPECT_THAT(a_.blocks(), ElementsAre(0));
  a_.prepare_write(pool_, 4, 1, copies_);
  EXPECT_THAT(a_.blocks(), ElementsAre(0, 1));
  a_.prepare_write(pool_, 5, 8, copies_);
  EXPECT_THAT(a_.blocks(), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(copies_, IsEmpty());
  EXPECT_THAT(a_.take_changed(), IsEmpty());
}

TEST_F(BlockTableTest, RoomCountsTheLastBlockAndWhatThePoolHas) {
  EXPECT_EQ(a_.room(pool_, 0), 16U);
  a_.prepare_write(pool_, 0, 5, copies_);
  EXPECT_EQ(a_.room(pool_, 5), 11U);
  b_.prepare_write(pool_, 0, 8, copies_);
  EXPECT_EQ(a_.room(pool_, 5), 3U);
  EXPECT_EQ(a_.room(pool_, 8), 0U);
}

TEST_F(BlockTableTest, ASharedBlockIsCopiedBeforeAWrite) {
  a_.prepare_write(pool_, 0, 6, copies_);  // blocks 0, 1; the second half full
  b_.share(pool_, a_.blocks());
  EXPECT_EQ(b_.room(pool_, 6), 6U);  // one of the two free blocks is for the copy
  b_.prepare_write(pool_, 6, 1, copies_);
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{1, 2}));
  EXPECT_THAT(b_.blocks(), ElementsAre(0, 2));
  EXPECT_THAT(b_.take_changed(), ElementsAre(1));
  EXPECT_THAT(b_.take_changed(), IsEmpty());
  EXPECT_EQ(pool_.references(0), 2U);
  EXPECT_TRUE(pool_.writable(1));
  EXPECT_TRUE(pool_.writable(2));
  a_.prepare_write(pool_, 6, 1, copies_);  // now alone in its block
  EXPECT_EQ(copies_.size(), 1U);
}

TEST_F(BlockTableTest, APublishedBlockIsCopiedBeforeAWrite) {
  a_.prepare_write(pool_, 0, 4, copies_);
  a_.publish(pool_, 0, std::vector<TokenId>{1, 2, 3, 4}, 0);
  a_.prepare_write(pool_, 3, 1, copies_);  // held by nobody else, but others may find it
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{0, 1}));
  EXPECT_THAT(a_.blocks(), ElementsAre(1));
  EXPECT_EQ(pool_.num_cached(), 1U);
}

TEST_F(BlockTableTest, NoRoomForTheCopyIsNoRoom) {
  a_.prepare_write(pool_, 0, 14, copies_);
  b_.share(pool_, a_.blocks());
  EXPECT_EQ(pool_.available(), 0U);
  EXPECT_EQ(b_.room(pool_, 14), 0U);
}

TEST_F(BlockTableTest, PublishingTakesTheBlockThatIsKnown) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  for (BlockTable* table : {&a_, &b_}) {
    table->prepare_write(pool_, 0, 8, copies_);
    table->publish(pool_, 0, std::span(tokens).first(4), 0);
  }
  EXPECT_THAT(b_.blocks(), ElementsAre(0, 3));
  EXPECT_THAT(b_.take_changed(), ElementsAre(0));
  b_.publish(pool_, 1, std::span(tokens).last(4), 0);
  a_.publish(pool_, 1, std::span(tokens).last(4), 0);  // the second to come this time
  EXPECT_THAT(a_.blocks(), ElementsAre(0, 3));
  EXPECT_THAT(a_.take_changed(), ElementsAre(1));
  EXPECT_EQ(pool_.num_referenced(), 2U);
}

TEST_F(BlockTableTest, ClearGivesAllBackAndLeavesTheChainsEndToBeEvictedFirst) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8};
  a_.prepare_write(pool_, 0, 8, copies_);
  a_.publish(pool_, 0, std::span(tokens).first(4), 0);
  a_.publish(pool_, 1, std::span(tokens).last(4), 0);
  a_.clear(pool_);
  EXPECT_EQ(a_.size(), 0U);
  EXPECT_EQ(pool_.num_cached(), 2U);
  b_.prepare_write(pool_, 0, 12, copies_);  // two free blocks and one evicted
  EXPECT_THAT(b_.blocks(), ElementsAre(2, 3, 1));
}

}  // namespace
}  // namespace quire
