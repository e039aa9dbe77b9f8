#include "control/kv/block_pool.h"

#include <gtest/gtest.h>

namespace quire::control {
namespace {

class BlockPoolTest : public testing::Test {
 protected:
  void TearDown() override { EXPECT_EQ(pool_.check_invariants(), ""); }
  /// A one-block chain that holds `token`; the block that stands for it.
  BlockId publish(BlockId block, TokenId token) {
    return pool_.attach(pool_.publish(kNoNode, std::vector<TokenId>{token, token}, 0), 0, block);
  }

  BlockPool pool_{PrefixCache(4, 2, make_eviction(EvictionKind::kLru, 4))};
};

TEST_F(BlockPoolTest, HandsOutInOrderUntilNoneIsLeft) {
  for (BlockId block = 0; block < 4; ++block) EXPECT_EQ(pool_.allocate(), block);
  EXPECT_EQ(pool_.allocate(), kNoBlock);
  EXPECT_EQ(pool_.available(), 0U);
  EXPECT_EQ(pool_.num_referenced(), 4U);
}

TEST_F(BlockPoolTest, TheLastFreedIsTheNextGiven) {
  for (int i = 0; i < 4; ++i) pool_.allocate();
  pool_.release(1);
  pool_.release(3);
  EXPECT_EQ(pool_.allocate(), 3U);
  EXPECT_EQ(pool_.allocate(), 1U);
}

TEST_F(BlockPoolTest, CountsHolders) {
  const BlockId block = pool_.allocate();
  EXPECT_TRUE(pool_.writable(block));
  pool_.retain(block);
  pool_.retain(block);
  EXPECT_EQ(pool_.references(block), 3U);
  EXPECT_FALSE(pool_.writable(block));
  EXPECT_EQ(pool_.num_shared(), 1U);
  EXPECT_EQ(pool_.num_saved(), 2U);
  pool_.release(block);
  pool_.release(block);
  EXPECT_TRUE(pool_.writable(block));
  EXPECT_EQ(pool_.num_shared(), 0U);
  EXPECT_EQ(pool_.num_saved(), 0U);
  pool_.release(block);
  EXPECT_EQ(pool_.num_free(), 4U);
}

TEST_F(BlockPoolTest, APublishedBlockIsCachedWhenLetGoAndHeldAgainByAHit) {
  const BlockId block = pool_.allocate();
  EXPECT_EQ(publish(block, 1), block);
  EXPECT_FALSE(pool_.writable(block));
  pool_.release(block);
  EXPECT_EQ(pool_.num_cached(), 1U);
  EXPECT_EQ(pool_.num_free(), 3U);
  EXPECT_EQ(pool_.available(), 4U);
  pool_.retain(block);
  EXPECT_EQ(pool_.num_cached(), 0U);
  EXPECT_EQ(pool_.available(), 3U);
}

TEST_F(BlockPoolTest, ABlockThatAHitTookIsNotEvicted) {
  const BlockId block = pool_.allocate();
  publish(block, 1);
  pool_.release(block);
  pool_.retain(block);
  for (int i = 0; i < 3; ++i) EXPECT_NE(pool_.allocate(), kNoBlock);
  EXPECT_EQ(pool_.allocate(), kNoBlock);
  EXPECT_EQ(pool_.references(block), 1U);
}

TEST_F(BlockPoolTest, EvictsOnlyWhenNoneIsFree) {
  const BlockId cached = pool_.allocate();
  publish(cached, 1);
  pool_.release(cached);
  for (int i = 0; i < 3; ++i) EXPECT_NE(pool_.allocate(), cached);
  EXPECT_EQ(pool_.num_evictions(), 0U);
  EXPECT_EQ(pool_.allocate(), cached);
  EXPECT_EQ(pool_.num_evictions(), 1U);
  EXPECT_TRUE(pool_.writable(cached));
  EXPECT_EQ(pool_.allocate(), kNoBlock);
}

TEST_F(BlockPoolTest, EqualContentsAreKeptOnce) {
  const BlockId first = pool_.allocate();
  const BlockId second = pool_.allocate();
  EXPECT_EQ(publish(first, 1), first);
  EXPECT_EQ(publish(second, 1), first);
  EXPECT_EQ(pool_.references(first), 2U);
  EXPECT_EQ(pool_.references(second), 0U);
  EXPECT_EQ(pool_.num_free(), 3U);
}

TEST_F(BlockPoolTest, DropsWhatNobodyHolds) {
  const BlockId held = pool_.allocate();
  const BlockId idle = pool_.allocate();
  publish(held, 1);
  publish(idle, 2);
  pool_.release(idle);
  pool_.drop_cached();
  EXPECT_EQ(pool_.num_cached(), 0U);
  EXPECT_EQ(pool_.num_free(), 3U);
  EXPECT_EQ(pool_.num_evictions(), 0U);  // nobody needed them
  EXPECT_TRUE(pool_.cache().contains(held));
}

}  // namespace
}  // namespace quire::control
