#include "record/prefix_snapshot.h"

#include <algorithm>
#include <ranges>
#include <unordered_map>

namespace quire::record {

std::vector<PrefixNode> snapshot(const control::PrefixCache& cache) {
  std::vector<PrefixNode> out;
  std::unordered_map<control::NodeId, uint32_t> index;
  for (const control::NodeId node : cache.nodes()) {
    index[node] = static_cast<uint32_t>(out.size());
    PrefixNode& copy = out.emplace_back();
    if (cache.parent(node) != control::kNoNode) copy.parent = index.at(cache.parent(node));
    copy.salt = cache.salt(node);
    copy.tokens.assign(cache.tokens_of(node).begin(), cache.tokens_of(node).end());
    for (uint32_t group = 0; group < cache.num_groups(); ++group) {
      copy.blocks.push_back(cache.block(node, group));
    }
  }
  return out;
}

void restore(control::BlockPool& pool, std::vector<PrefixNode>& nodes) {
  const auto windows = pool.cache().windows();
  pool.log().of(kNoSeq);
  std::vector<control::NodeId> ids;
  for (PrefixNode& node : nodes) {
    const bool root = node.parent == PrefixNode::kRoot;
    ids.push_back(pool.publish(root ? control::kNoNode : ids[node.parent], node.tokens, node.salt));
    pool.pin(ids.back());  // it may get no block
    for (uint32_t group = 0; group < windows.size(); ++group) {
      BlockId& block = node.blocks[group];
      const bool follows = root || windows[group] != 0 || nodes[node.parent].blocks[group] != kNoBlock;
      const bool wanted = block != kNoBlock && follows && pool.num_free() > 0 &&
                          pool.cache().block(ids.back(), group) == kNoBlock;
      block = wanted ? pool.attach(ids.back(), group, pool.allocate()) : kNoBlock;
    }
  }
  // The ends of chains first, which are then the first to be evicted.
  for (size_t i = nodes.size(); i-- > 0;) {
    for (const BlockId block : nodes[i].blocks) {
      if (block != kNoBlock) pool.release(block);
    }
    pool.unpin(ids[i]);
  }
}

}  // namespace quire::record
