#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "control/kv/block_pool.h"
#include "control/kv/prefix_cache.h"

// PrefixCache::check_invariants and BlockPool::check_invariants, and what they need.
namespace quire::control {

bool PrefixCache::spells(NodeId node, std::span<const TokenId> tokens, uint64_t salt) const {
  for (; node != kNoNode; node = nodes_[node].parent) {
    if (tokens.size() < block_size_ || nodes_[node].salt != salt ||
        !std::ranges::equal(tokens_of(node), tokens.last(block_size_))) {
      return false;
    }
    tokens = tokens.first(tokens.size() - block_size_);
  }
  return tokens.empty();
}

std::string PrefixCache::check_node(NodeId node) const {
  const Node& known = nodes_[node];
  bool needed = known.pins > 0 || known.first_child != kNoNode;
  for (uint32_t group = 0; group < num_groups(); ++group) {
    const BlockId own = block(node, group);
    if (own == kNoBlock) continue;
    needed = true;
    if (places_[own].node != node || places_[own].group != group) {
      return fmt::format("block {} of node {} knows another place", own, node);
    }
    if (windows_[group] != 0 || known.parent == kNoNode) continue;
    const BlockId before = block(known.parent, group);
    if (before == kNoBlock) return fmt::format("block {} outlived that of its parent", own);
    if (is_idle(before) && !is_idle(own)) return fmt::format("block {} is held, its parent's is not", own);
  }
  if (!needed) return fmt::format("nothing needs node {}", node);
  if (known.parent != kNoNode) {
    const Node& parent = nodes_[known.parent];
    if (!parent.used) return fmt::format("node {} outlived its parent {}", node, known.parent);
    if (parent.salt != known.salt) return fmt::format("node {} has another salt than its parent", node);
  }
  const uint32_t depth = known.parent == kNoNode ? 0 : nodes_[known.parent].depth + 1;
  if (known.depth != depth) return fmt::format("node {} has a wrong depth", node);
  const uint64_t parent_hash = known.parent == kNoNode ? known.salt : nodes_[known.parent].hash;
  if (hash_(tokens_of(node), parent_hash) != known.hash) return fmt::format("node {} has a wrong hash", node);
  if (find(known.hash, known.parent, tokens_of(node), known.salt) != node) {
    return fmt::format("node {} is not found by its contents", node);
  }
  return {};
}

std::string PrefixCache::check_invariants() const {
  size_t num_used = 0;
  size_t num_children = 0;
  size_t num_listed = 0;
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    if (!nodes_[node].used) continue;
    ++num_used;
    if (nodes_[node].parent != kNoNode) ++num_children;
    if (std::string wrong = check_node(node); !wrong.empty()) return wrong;
    for (NodeId child = nodes_[node].first_child; child != kNoNode; child = nodes_[child].next_sibling) {
      if (nodes_[child].parent != node) return fmt::format("node {} has a wrong child", node);
      if (++num_listed > nodes_.size()) return "a list of children is a loop";
    }
  }
  if (num_listed != num_children) return "a child is not in its parent's list";
  if (num_used != num_nodes()) return "a node is lost";
  uint32_t num_idle = 0;
  for (BlockId block = 0; block < num_blocks(); ++block) {
    const Place& place = places_[block];
    num_idle += place.idle ? 1 : 0;
    if (place.node == kNoNode) {
      if (place.idle) return fmt::format("block {} is idle but not published", block);
    } else if (this->block(place.node, place.group) != block) {
      return fmt::format("block {} is not where it thinks", block);
    }
  }
  if (num_idle != num_idle_) return fmt::format("{} blocks idle, {} counted", num_idle, num_idle_);
  if (eviction_->empty() != (num_idle == 0)) return "the eviction policy lost or invented a block";
  return {};
}

std::string BlockPool::check_invariants() const {
  if (std::string wrong = cache_.check_invariants(); !wrong.empty()) return wrong;
  std::vector<bool> is_free(size());
  for (const BlockId block : free_) {
    if (is_free[block]) return fmt::format("block {} is twice in the free list", block);
    is_free[block] = true;
  }
  uint32_t num_shared = 0;
  uint64_t num_saved = 0;
  for (BlockId block = 0; block < size(); ++block) {
    const bool referenced = references_[block] > 0;
    const bool cached = !referenced && cache_.contains(block);
    if ((is_free[block] ? 1 : 0) + (referenced ? 1 : 0) + (cached ? 1 : 0) != 1) {
      return fmt::format("block {} is not in exactly one state (free {}, references {}, cached {})", block,
                         is_free[block], references_[block], cached);
    }
    if (cached != cache_.is_idle(block)) return fmt::format("block {}: the index counts it wrongly", block);
    if (references_[block] > 1) ++num_shared;
    if (referenced) num_saved += references_[block] - 1;
  }
  if (num_shared != num_shared_ || num_saved != num_saved_) return "the counts of shared blocks are wrong";
  return {};
}

}  // namespace quire::control
