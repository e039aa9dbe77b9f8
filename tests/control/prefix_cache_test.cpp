#include "control/prefix_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kBlockSize = 2;
constexpr uint32_t kNumBlocks = 8;

/// Everything collides.
uint64_t constant_hash(std::span<const TokenId>, uint64_t) { return 7; }

/// Wants to evict a chain's parents first: the idle block with the least depth.
class ContraryEviction final : public EvictionPolicy {
 public:
  void use(const CachedBlock& block) override {
    depth_[block.block] = block.depth;
    idle_[block.block] = false;
  }
  void idle(BlockId block) override { idle_[block] = true; }
  void remove(BlockId block) override { idle_[block] = false; }
  BlockId victim() const override {
    BlockId best = kNoBlock;
    for (BlockId block = 0; block < kNumBlocks; ++block) {
      if (idle_[block] && (best == kNoBlock || depth_[block] < depth_[best])) best = block;
    }
    return best;
  }

 private:
  uint32_t depth_[kNumBlocks] = {};
  bool idle_[kNumBlocks] = {};
};

class PrefixCacheTest : public testing::TestWithParam<PrefixCache::Hash> {
 protected:
  /// Publishes the whole blocks of `tokens` as `blocks`. Returns those that stand for them.
  std::vector<BlockId> publish(std::vector<TokenId> tokens, std::vector<BlockId> blocks, uint64_t salt = 0) {
    BlockId parent = kNoBlock;
    for (size_t i = 0; i < blocks.size(); ++i) {
      const auto own = std::span(tokens).subspan(i * kBlockSize, kBlockSize);
      parent = blocks[i] = cache_.publish(blocks[i], parent, own, salt);
    }
    return blocks;
  }
  std::vector<BlockId> match(std::vector<TokenId> tokens, uint64_t salt = 0) {
    std::vector<BlockId> hits{99};  // to be forgotten
    cache_.match(tokens, salt, hits);
    return hits;
  }
  void let_go(std::vector<BlockId> blocks) {
    for (const BlockId block : blocks) cache_.idle(block);
  }
  void TearDown() override { EXPECT_EQ(cache_.check_invariants(), ""); }

  PrefixCache cache_{kNumBlocks, kBlockSize, make_lru_eviction(kNumBlocks), GetParam()};
};

// Nothing may depend on the hash but speed.
INSTANTIATE_TEST_SUITE_P(Hashes, PrefixCacheTest, testing::Values(PrefixCache::xxh3, constant_hash),
                         [](const auto& test) { return test.index == 0 ? "Xxh3" : "Constant"; });

TEST_P(PrefixCacheTest, FindsTheLongestPrefixInWholeBlocks) {
  publish({1, 2, 3, 4, 5, 6}, {0, 1, 2});
  EXPECT_THAT(match({1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 1, 2));
  EXPECT_THAT(match({1, 2, 3, 4, 9, 9, 9}), ElementsAre(0, 1));
  EXPECT_THAT(match({1, 2, 3, 9, 5, 6, 7}), ElementsAre(0));
  EXPECT_THAT(match({9, 2, 3, 4, 5, 6, 7}), IsEmpty());
  EXPECT_THAT(match({}), IsEmpty());
}

TEST_P(PrefixCacheTest, LeavesATokenToCompute) {
  publish({1, 2, 3, 4}, {0, 1});
  EXPECT_THAT(match({1, 2, 3, 4}), ElementsAre(0));
  EXPECT_THAT(match({1, 2, 3, 4, 5}), ElementsAre(0, 1));
  EXPECT_THAT(match({1, 2}), IsEmpty());
}

TEST_P(PrefixCacheTest, KeepsSaltsApart) {
  publish({1, 2, 3, 4}, {0, 1}, 5);
  EXPECT_THAT(match({1, 2, 3, 4, 5}, 5), ElementsAre(0, 1));
  EXPECT_THAT(match({1, 2, 3, 4, 5}, 6), IsEmpty());
  EXPECT_THAT(publish({1, 2, 3, 4}, {2, 3}, 6), ElementsAre(2, 3));
  EXPECT_THAT(match({1, 2, 3, 4, 5}, 6), ElementsAre(2, 3));
}

TEST_P(PrefixCacheTest, ComparesTheParentNotOnlyTheTokens) {
  publish({1, 1, 5, 5}, {0, 1});
  publish({2, 2, 5, 5}, {2, 3});
  EXPECT_THAT(match({1, 1, 5, 5, 0}), ElementsAre(0, 1));
  EXPECT_THAT(match({2, 2, 5, 5, 0}), ElementsAre(2, 3));
  EXPECT_THAT(match({5, 5, 1, 1, 0}), IsEmpty());
}

TEST_P(PrefixCacheTest, OneBlockStandsForEqualContents) {
  EXPECT_THAT(publish({1, 2, 3, 4}, {0, 1}), ElementsAre(0, 1));
  EXPECT_THAT(publish({1, 2, 3, 4, 5, 6}, {2, 3, 4}), ElementsAre(0, 1, 4));
  EXPECT_FALSE(cache_.contains(2));
  EXPECT_FALSE(cache_.contains(3));
  EXPECT_THAT(match({1, 2, 3, 4, 5, 6, 7}), ElementsAre(0, 1, 4));
}

TEST_P(PrefixCacheTest, EvictsTheLeastRecentlyUsedChainFromItsEnd) {
  publish({1, 1, 2, 2}, {0, 1});
  publish({3, 3, 4, 4}, {2, 3});
  let_go({3, 2});
  let_go({1, 0});
  cache_.use(2);  // a hit on the first block of the older chain, let go again
  let_go({2});
  EXPECT_EQ(cache_.evict(), 3U);
  EXPECT_EQ(cache_.evict(), 1U);
  EXPECT_EQ(cache_.evict(), 0U);
  EXPECT_THAT(match({3, 3, 4, 4, 0}), ElementsAre(2));
  EXPECT_EQ(cache_.evict(), 2U);
  EXPECT_EQ(cache_.evict(), kNoBlock);
}

TEST_P(PrefixCacheTest, HeldBlocksStay) {
  publish({1, 1, 2, 2, 3, 3}, {0, 1, 2});
  EXPECT_EQ(cache_.evict(), kNoBlock);
  let_go({2});
  EXPECT_EQ(cache_.num_idle(), 1U);
  EXPECT_EQ(cache_.evict(), 2U);
  EXPECT_EQ(cache_.evict(), kNoBlock);
  EXPECT_THAT(match({1, 1, 2, 2, 3, 3, 4}), ElementsAre(0, 1));
}

TEST_P(PrefixCacheTest, AReusedBlockDoesNotInheritChildren) {
  publish({1, 1, 2, 2}, {0, 1});
  let_go({1, 0});
  EXPECT_EQ(cache_.evict(), 1U);
  EXPECT_EQ(cache_.evict(), 0U);
  publish({9, 9}, {0});
  EXPECT_THAT(match({9, 9, 2, 2, 0}), ElementsAre(0));
}

TEST(PrefixCacheEviction, UnderAnyPolicyChildrenGoFirst) {
  PrefixCache cache(kNumBlocks, 1, std::make_unique<ContraryEviction>());
  const auto publish = [&](BlockId block, BlockId parent, TokenId token) {
    ASSERT_EQ(cache.publish(block, parent, std::vector{token}, 0), block);
  };
  publish(0, kNoBlock, 1);  // 0 - 1 - 2
  publish(1, 0, 1);         //   \ 3 - 4
  publish(2, 1, 1);         //   \ 5
  publish(3, 0, 2);
  publish(4, 3, 1);
  publish(5, 0, 3);
  for (const BlockId block : {2, 1, 4, 3, 5, 0}) cache.idle(block);
  std::vector<BlockId> order;
  for (BlockId block = cache.evict(); block != kNoBlock; block = cache.evict()) {
    order.push_back(block);
    ASSERT_EQ(cache.check_invariants(), "");  // a parent of every block is there
  }
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
}

TEST(PrefixCacheHash, DependsOnTokensAndParent) {
  const std::vector<TokenId> a = {1, 2};
  const std::vector<TokenId> b = {2, 1};
  EXPECT_NE(PrefixCache::xxh3(a, 0), PrefixCache::xxh3(b, 0));
  EXPECT_NE(PrefixCache::xxh3(a, 0), PrefixCache::xxh3(a, 1));
  EXPECT_EQ(PrefixCache::xxh3(a, 0), PrefixCache::xxh3({a.begin(), a.end()}, 0));
}

}  // namespace
}  // namespace quire
