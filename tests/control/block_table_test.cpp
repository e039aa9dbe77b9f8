#include "control/kv/block_table.h"

#include <memory>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::control {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class BlockTableTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(pool_.check_invariants(), ""); }

  /// `to` takes what holds the first `tokens` tokens of `from`.
  bool share(const BlockTable& from, uint32_t tokens, BlockTable& to) {
    Prefix prefix;
    if (!from.prefix(pool_, tokens, prefix)) return false;
    to.share(pool_, prefix);
    return true;
  }

  BlockPool pool_{PrefixCache(4, 4, make_eviction(EvictionKind::kLru, 4))};
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
  share(a_, 6, b_);
  EXPECT_EQ(b_.room(pool_, 6), 6U);  // one of the two free blocks is for the copy
  b_.prepare_write(pool_, 6, 1, copies_);
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{1, 2}));
  EXPECT_THAT(b_.blocks(), ElementsAre(0, 2));
  EXPECT_THAT(b_.take_changed(), ElementsAre(BlockTable::Entry{0, 1}));
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
  share(a_, 14, b_);
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
  EXPECT_THAT(b_.take_changed(), ElementsAre(BlockTable::Entry{0, 0}));
  b_.publish(pool_, 1, std::span(tokens).last(4), 0);
  a_.publish(pool_, 1, std::span(tokens).last(4), 0);  // the second to come this time
  EXPECT_THAT(a_.blocks(), ElementsAre(0, 3));
  EXPECT_THAT(a_.take_changed(), ElementsAre(BlockTable::Entry{0, 1}));
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

/// Keeps the order in which blocks become idle.
class ListedEviction final : public EvictionPolicy {
 public:
  explicit ListedEviction(std::shared_ptr<std::vector<BlockId>> listed) : listed_(std::move(listed)) {}
  void use(const CachedBlock& /*block*/) override {}
  void idle(BlockId block) override { listed_->push_back(block); }
  void remove(BlockId block) override { std::erase(*listed_, block); }
  BlockId victim() override { return empty() ? kNoBlock : listed_->front(); }
  bool empty() const override { return listed_->empty(); }

 private:
  std::shared_ptr<std::vector<BlockId>> listed_;
};

TEST_F(BlockTableTest, ClearLetsGoOfTheChainsEndFirst) {
  const auto idle = std::make_shared<std::vector<BlockId>>();
  pool_ = BlockPool(PrefixCache(4, 4, std::make_unique<ListedEviction>(idle)));
  const std::vector<TokenId> tokens = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12};
  a_.prepare_write(pool_, 0, 12, copies_);
  for (uint32_t i = 0; i < 3; ++i) a_.publish(pool_, i, std::span(tokens).subspan(4 * i, 4), 0);
  a_.clear(pool_);
  EXPECT_THAT(*idle, ElementsAre(2, 1, 0));
}

/// Two groups: one sees all, the other 6 tokens.
class WindowedTableTest : public BlockTableTest {
 protected:
  WindowedTableTest() {
    pool_ = BlockPool(PrefixCache(16, 4, make_eviction(EvictionKind::kLru, 16), PrefixCache::xxh3, {0, 6}));
    a_ = b_ = BlockTable(2);
  }
};

TEST_F(WindowedTableTest, GrowsByARowOfOneBlockAGroup) {
  EXPECT_EQ(a_.room(pool_, 0), 32U);
  a_.prepare_write(pool_, 0, 5, copies_);
  EXPECT_THAT(a_.blocks(0), ElementsAre(0, 1));
  EXPECT_THAT(a_.blocks(1), ElementsAre(2, 3));
  b_.prepare_write(pool_, 0, 20, copies_);  // 10 blocks; two are left
  EXPECT_EQ(a_.room(pool_, 5), 7U);
  b_.prepare_write(pool_, 20, 1, copies_);
  EXPECT_EQ(a_.room(pool_, 5), 3U);
}

TEST_F(WindowedTableTest, GivesBackWhatLiesBehindTheWindow) {
  a_.prepare_write(pool_, 0, 20, copies_);
  a_.release_behind(pool_, 10);  // position 9 sees 4 to 9
  EXPECT_THAT(a_.blocks(1), ElementsAre(kNoBlock, 6, 7, 8, 9));
  EXPECT_THAT(a_.blocks(0), ElementsAre(0, 1, 2, 3, 4));
  a_.release_behind(pool_, 13);  // position 12 sees 7
  EXPECT_THAT(a_.blocks(1), ElementsAre(kNoBlock, 6, 7, 8, 9));
  a_.release_behind(pool_, 14);
  EXPECT_THAT(a_.blocks(1), ElementsAre(kNoBlock, kNoBlock, 7, 8, 9));
  EXPECT_EQ(pool_.num_referenced(), 8U);
  a_.clear(pool_);
  EXPECT_EQ(pool_.num_free(), 16U);
}

TEST_F(WindowedTableTest, SharesWhatTheNextTokenReadsOrNothing) {
  a_.prepare_write(pool_, 0, 14, copies_);
  a_.release_behind(pool_, 14);
  EXPECT_FALSE(share(a_, 12, b_));  // position 12 sees 7, in a block that was given back
  EXPECT_TRUE(share(a_, 13, b_));
  EXPECT_THAT(b_.blocks(0), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(b_.blocks(1), ElementsAre(kNoBlock, kNoBlock, 6, 7));
  b_.prepare_write(pool_, 13, 1, copies_);  // both groups' last block is copied
  EXPECT_THAT(copies_, ElementsAre(BlockCopy{3, 4}, BlockCopy{7, 5}));
  EXPECT_THAT(b_.take_changed(), ElementsAre(BlockTable::Entry{0, 3}, BlockTable::Entry{1, 3}));
}

TEST_F(WindowedTableTest, PublishesAllGroupsOfARow) {
  const std::vector<TokenId> tokens = {1, 2, 3, 4};
  for (BlockTable* table : {&a_, &b_}) {
    table->prepare_write(pool_, 0, 5, copies_);
    table->publish(pool_, 0, tokens, 0);
  }
  EXPECT_THAT(b_.blocks(0), ElementsAre(0, 5));
  EXPECT_THAT(b_.blocks(1), ElementsAre(2, 7));
  EXPECT_THAT(b_.take_changed(), ElementsAre(BlockTable::Entry{0, 0}, BlockTable::Entry{1, 0}));
  EXPECT_EQ(a_.node(), b_.node());
  EXPECT_EQ(pool_.cache().pins(a_.node()), 2U);
  a_.clear(pool_);
  b_.clear(pool_);
  EXPECT_EQ(pool_.num_cached(), 2U);
  pool_.drop_cached();
  EXPECT_EQ(pool_.cache().num_nodes(), 0U);
}

}  // namespace
}  // namespace quire::control
