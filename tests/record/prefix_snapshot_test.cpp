#include "record/prefix_snapshot.h"

#include <algorithm>
#include <map>
#include <set>

#include <gtest/gtest.h>

#include "base/rng.h"
#include "control/scheduler.h"

namespace quire::record {
namespace {

control::SchedulerConfig config_of(uint32_t num_blocks, std::vector<uint32_t> windows) {
  control::SchedulerConfig config;
  config.num_blocks = num_blocks;
  config.block_size = 4;
  config.kv_windows = std::move(windows);
  config.max_num_batched_tokens = 64;
  config.max_model_len = 200;
  return config;
}

/// Runs sequences with common beginnings to their ends. Some blocks are then evicted.
void play(control::Scheduler& scheduler, uint64_t seed) {
  SplitMix64 random(seed);
  for (SeqId id = 0; id < 40; ++id) {
    control::SeqSpec spec;
    spec.id = id;
    spec.salt = random.below(2);
    const uint64_t story = random.below(4);
    for (uint64_t i = 0; i < 10 + story * 5; ++i)
      spec.prompt.push_back(static_cast<TokenId>(story * 100 + i));
    for (uint64_t i = random.below(12); i > 0; --i)
      spec.prompt.push_back(static_cast<TokenId>(random.below(3)));
    spec.max_tokens = 1 + static_cast<uint32_t>(random.below(30));
    ASSERT_TRUE(scheduler.add(spec));
  }
  while (scheduler.has_work()) {
    const control::StepPlan plan = scheduler.plan();
    control::StepResult result;
    for (const control::SeqStep& seq : plan.seqs) {
      auto& token = result.seqs.emplace_back().token;
      if (seq.rows == control::LogitRows::kLast)
        token.emplace().token = static_cast<TokenId>(random.below(3));
    }
    scheduler.commit(plan, std::move(result));
  }
}

/// What a cache knows: all tokens up to a node, its salt and a group, for each block.
using Contents = std::set<std::tuple<std::vector<TokenId>, uint64_t, size_t>>;
Contents contents_of(const std::vector<PrefixNode>& nodes) {
  Contents out;
  std::vector<std::vector<TokenId>> chains;
  for (const PrefixNode& node : nodes) {
    std::vector<TokenId> chain;
    if (node.parent != PrefixNode::kRoot) chain = chains.at(node.parent);
    chain.insert(chain.end(), node.tokens.begin(), node.tokens.end());
    for (size_t group = 0; group < node.blocks.size(); ++group) {
      if (node.blocks[group] != kNoBlock) out.emplace(chain, node.salt, group);
    }
    chains.push_back(std::move(chain));
  }
  return out;
}

class PrefixSnapshot : public testing::TestWithParam<std::vector<uint32_t>> {};

TEST_P(PrefixSnapshot, IsRestoredWhole) {
  for (uint64_t seed = 0; seed < 20; ++seed) {
    control::Scheduler before(config_of(120, GetParam()));
    play(before, seed);
    const auto nodes = snapshot(before.pool().cache());
    ASSERT_GT(contents_of(nodes).size(), 20U);

    control::Scheduler after(config_of(120, GetParam()));
    auto given = nodes;
    restore(after.pool(), given);
    EXPECT_EQ(after.check_invariants(), "");
    EXPECT_EQ(contents_of(given), contents_of(nodes));
    EXPECT_EQ(contents_of(snapshot(after.pool().cache())), contents_of(nodes));
    std::set<BlockId> blocks;
    for (const PrefixNode& node : given) {
      for (const BlockId block : node.blocks) {
        if (block == kNoBlock) continue;
        EXPECT_TRUE(blocks.insert(block).second);
      }
    }
    play(after, seed + 1);
    EXPECT_EQ(after.check_invariants(), "");
    EXPECT_GT(after.stats().total_prefix_hit_tokens, 0U);
  }
}

TEST_P(PrefixSnapshot, IsCutToASmallerPoolAndWhatIsMissingCostsWhatComesAfterIt) {
  size_t lost = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    control::Scheduler before(config_of(120, GetParam()));
    play(before, seed);
    auto nodes = snapshot(before.pool().cache());
    SplitMix64 random(seed);
    for (PrefixNode& node : nodes) {  // some were damaged
      for (BlockId& block : node.blocks) {
        if (random.below(8) == 0) block = kNoBlock;
      }
    }
    control::Scheduler after(config_of(static_cast<uint32_t>(70 + random.below(20)), GetParam()));
    auto given = nodes;
    restore(after.pool(), given);
    EXPECT_EQ(after.check_invariants(), "");
    const Contents all = contents_of(nodes);
    const Contents kept = contents_of(given);
    EXPECT_TRUE(std::ranges::includes(all, kept));
    lost += all.size() - kept.size();
    EXPECT_EQ(contents_of(snapshot(after.pool().cache())), kept);
    EXPECT_EQ(after.pool().num_cached(), kept.size());
    play(after, seed + 1);
    EXPECT_EQ(after.check_invariants(), "");
    EXPECT_EQ(after.pool().num_referenced(), 0U);
  }
  EXPECT_GT(lost, 0U);
}

INSTANTIATE_TEST_SUITE_P(Groups, PrefixSnapshot,
                         testing::Values(std::vector<uint32_t>{0}, std::vector<uint32_t>{9},
                                         std::vector<uint32_t>{0, 9}, std::vector<uint32_t>{0, 0, 17, 5}));

}  // namespace
}  // namespace quire::record
