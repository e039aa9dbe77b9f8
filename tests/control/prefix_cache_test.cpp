#include "control/kv/prefix_cache.h"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace quire::control {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr uint32_t kBlockSize = 2;
constexpr uint32_t kNumBlocks = 8;

/// Everything collides.
uint64_t constant_hash(std::span<const TokenId>, uint64_t) { return 7; }

/// Wants to evict a chain's parents first: the idle block of the first position.
class ContraryEviction final : public EvictionPolicy {
 public:
  void use(const CachedBlock& block) override {
    position_[block.block] = block.position;
    idle_[block.block] = false;
  }
  void idle(BlockId block) override { idle_[block] = true; }
  void remove(BlockId block) override { idle_[block] = false; }
  BlockId victim() override { return least_deep(); }
  bool empty() const override { return least_deep() == kNoBlock; }

 private:
  BlockId least_deep() const {
    BlockId best = kNoBlock;
    for (BlockId block = 0; block < kNumBlocks; ++block) {
      if (idle_[block] && (best == kNoBlock || position_[block] < position_[best])) best = block;
    }
    return best;
  }

  uint64_t position_[kNumBlocks] = {};
  bool idle_[kNumBlocks] = {};
};

class PrefixCacheTest : public testing::TestWithParam<PrefixCache::Hash> {
 protected:
  /// Publishes the whole blocks of `tokens` as `blocks`. Returns those that stand for them.
  std::vector<BlockId> publish(std::vector<TokenId> tokens, std::vector<BlockId> blocks, uint64_t salt = 0) {
    NodeId node = kNoNode;
    for (size_t i = 0; i < blocks.size(); ++i) {
      node = cache_.publish(node, std::span(tokens).subspan(i * kBlockSize, kBlockSize), salt);
      blocks[i] = cache_.attach(node, 0, blocks[i]);
    }
    return blocks;
  }
  std::vector<BlockId> match(std::vector<TokenId> tokens, uint64_t salt = 0) {
    Prefix found{99, 99, {99}};  // to be forgotten
    cache_.match(tokens, salt, found);
    EXPECT_EQ(found.num_rows, found.blocks.size());
    EXPECT_TRUE(cache_.spells(found.node, std::span(tokens).first(found.num_rows * kBlockSize), salt));
    return found.blocks;
  }
  void let_go(std::vector<BlockId> blocks) {
    for (const BlockId block : blocks) cache_.idle(block);
  }
  void TearDown() override { EXPECT_EQ(cache_.check_invariants(), ""); }

  PrefixCache cache_{kNumBlocks, kBlockSize, make_eviction(EvictionKind::kLru, kNumBlocks), GetParam()};
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
  std::map<BlockId, NodeId> nodes = {{kNoBlock, kNoNode}};
  const auto publish = [&](BlockId block, BlockId parent, TokenId token) {
    nodes[block] = cache.publish(nodes.at(parent), std::vector{token}, 0);
    ASSERT_EQ(cache.attach(nodes[block], 0, block), block);
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

/// Blocks of one token; a group that sees all and one that sees three. Chain i has the tokens i, i, ...
class WindowedCacheTest : public testing::Test {
 protected:
  /// Publishes a chain of `length` rows: blocks first + 2 i of the first group, first + 2 i + 1 of the other.
  std::vector<NodeId> chain(PrefixCache& cache, TokenId token, uint32_t length, BlockId first) {
    std::vector<NodeId> nodes = {kNoNode};
    for (uint32_t i = 0; i < length; ++i) {
      nodes.push_back(cache.publish(nodes.back(), std::vector{token}, 0));
      for (uint32_t group = 0; group < cache.num_groups(); ++group) {
        cache.attach(nodes.back(), group, first + cache.num_groups() * i + group);
      }
    }
    return {nodes.begin() + 1, nodes.end()};
  }
  static Prefix match(const PrefixCache& cache, TokenId token, uint32_t length) {
    Prefix found;
    cache.match(std::vector<TokenId>(length, token), 0, found);
    return found;
  }
  static void let_go(PrefixCache& cache, std::vector<BlockId> blocks) {
    for (const BlockId block : blocks) cache.idle(block);
  }
};

TEST_F(WindowedCacheTest, AHitNeedsOnlyTheBlocksInsideTheWindow) {
  PrefixCache cache(16, 1, make_eviction(EvictionKind::kLru, 16), PrefixCache::xxh3, {0, 3});
  chain(cache, 7, 6, 0);
  const Prefix whole = match(cache, 7, 7);
  EXPECT_EQ(whole.num_rows, 6U);
  // The next token, at 6, sees 4 and 5 besides itself.
  EXPECT_THAT(whole.blocks, ElementsAre(0, 2, 4, 6, 8, 10, kNoBlock, kNoBlock, kNoBlock, kNoBlock, 9, 11));
  let_go(cache, {1, 3, 5, 7});
  for (const BlockId block : {1U, 3U, 5U, 7U}) EXPECT_EQ(cache.evict(), block);  // each alone
  EXPECT_EQ(cache.evict(), kNoBlock);
  EXPECT_EQ(match(cache, 7, 7).num_rows, 6U);
  EXPECT_EQ(match(cache, 7, 6).num_rows, 0U);  // position 5 would see 3
  EXPECT_EQ(cache.check_invariants(), "");
}

TEST_F(WindowedCacheTest, TheLongestPrefixThatEveryGroupHasIsFound) {
  PrefixCache cache(16, 1, make_eviction(EvictionKind::kLru, 16), PrefixCache::xxh3, {0, 3});
  chain(cache, 7, 6, 0);
  let_go(cache, {9});
  EXPECT_EQ(cache.evict(), 9U);
  EXPECT_EQ(match(cache, 7, 7).num_rows, 4U);
  EXPECT_THAT(match(cache, 7, 7).blocks, ElementsAre(0, 2, 4, 6, kNoBlock, kNoBlock, 5, 7));
}

TEST_F(WindowedCacheTest, WithAFullGroupAChainGoesFromItsEnd) {
  PrefixCache cache(16, 1, make_eviction(EvictionKind::kLru, 16), PrefixCache::xxh3, {0, 3});
  chain(cache, 7, 3, 0);
  let_go(cache, {0, 1, 2, 3, 4, 5});  // the root first
  std::vector<BlockId> order;
  for (BlockId block = cache.evict(); block != kNoBlock; block = cache.evict()) {
    order.push_back(block);
    ASSERT_EQ(cache.check_invariants(), "");
  }
  EXPECT_THAT(order, ElementsAre(5, 4, 3, 2, 1, 0));
  EXPECT_EQ(cache.num_nodes(), 0U);
}

TEST_F(WindowedCacheTest, WithWindowsOnlyAChainIsKeptByItsEnd) {
  PrefixCache cache(8, 1, make_eviction(EvictionKind::kLru, 8), PrefixCache::xxh3, {3});
  const auto nodes = chain(cache, 7, 5, 0);
  cache.pin(nodes.back());
  let_go(cache, {0, 1, 2, 3, 4});
  for (BlockId block = 0; block < 3; ++block) EXPECT_EQ(cache.evict(), block);
  EXPECT_EQ(cache.num_nodes(), 5U);
  EXPECT_EQ(match(cache, 7, 6).num_rows, 5U);  // by the tokens of all five, the blocks of two
  EXPECT_THAT(match(cache, 7, 6).blocks, ElementsAre(kNoBlock, kNoBlock, kNoBlock, 3, 4));
  EXPECT_EQ(match(cache, 7, 4).num_rows, 0U);
  EXPECT_EQ(cache.evict(), 3U);
  EXPECT_EQ(cache.evict(), 4U);
  EXPECT_EQ(cache.num_nodes(), 5U);  // pinned
  EXPECT_EQ(cache.check_invariants(), "");
  cache.unpin(nodes.back());
  EXPECT_EQ(cache.num_nodes(), 0U);
  EXPECT_EQ(cache.check_invariants(), "");
}

TEST_F(WindowedCacheTest, AMissingBlockIsPutInAgain) {
  PrefixCache cache(8, 1, make_eviction(EvictionKind::kLru, 8), PrefixCache::xxh3, {0, 2});
  const auto nodes = chain(cache, 7, 2, 0);
  let_go(cache, {3});
  EXPECT_EQ(cache.evict(), 3U);
  EXPECT_EQ(cache.publish(nodes[0], std::vector<TokenId>{7}, 0), nodes[1]);
  EXPECT_EQ(cache.attach(nodes[1], 0, 5), 2U);
  EXPECT_EQ(cache.attach(nodes[1], 1, 6), 6U);
  EXPECT_THAT(match(cache, 7, 3).blocks, ElementsAre(0, 2, kNoBlock, 6));
  EXPECT_EQ(cache.check_invariants(), "");
}

TEST_F(WindowedCacheTest, MoreNodesThanBlocks) {
  PrefixCache cache(4, 1, make_eviction(EvictionKind::kLru, 4), PrefixCache::xxh3, {2});
  NodeId node = kNoNode;
  for (TokenId i = 0; i < 100; ++i) {  // one that moves on, a block at a time
    const NodeId next = cache.publish(node, std::vector{i}, 0);
    cache.attach(next, 0, static_cast<BlockId>(i % 4));
    cache.pin(next);
    cache.unpin(node);
    node = next;
    cache.idle(static_cast<BlockId>(i % 4));
    if (i >= 3) {
      ASSERT_EQ(cache.evict(), static_cast<BlockId>((i + 1) % 4));
    }
    ASSERT_EQ(cache.check_invariants(), "");
  }
  EXPECT_EQ(cache.num_nodes(), 100U);
  std::vector<TokenId> all(101);
  for (TokenId i = 0; i < 101; ++i) all[static_cast<size_t>(i)] = i;
  Prefix found;
  cache.match(all, 0, found);
  EXPECT_EQ(found.num_rows, 100U);
}

TEST(PrefixCacheHash, DependsOnTokensAndParent) {
  const std::vector<TokenId> up = {1, 2};
  const std::vector<TokenId> down = {2, 1};
  EXPECT_NE(PrefixCache::xxh3(up, 0), PrefixCache::xxh3(down, 0));
  EXPECT_NE(PrefixCache::xxh3(up, 0), PrefixCache::xxh3(up, 1));
  EXPECT_EQ(PrefixCache::xxh3(up, 0), PrefixCache::xxh3({up.begin(), up.end()}, 0));
}

}  // namespace
}  // namespace quire::control
