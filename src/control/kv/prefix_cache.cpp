#include "control/kv/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <xxhash.h>

#include <fmt/format.h>

#include "control/kv/windows.h"

namespace quire::control {

uint64_t PrefixCache::xxh3(std::span<const TokenId> tokens, uint64_t parent_hash) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent_hash);
}

PrefixCache::PrefixCache(uint32_t num_blocks, uint32_t block_size, std::unique_ptr<EvictionPolicy> eviction,
                         Hash hash, std::vector<uint32_t> windows)
    : block_size_(block_size),
      windows_(std::move(windows)),
      eviction_(std::move(eviction)),
      hash_(hash),
      buckets_(std::bit_ceil(size_t{num_blocks} + 1), kNoNode),
      places_(num_blocks) {
  nodes_.reserve(num_blocks);  // address space: moving the nodes later would take too long for one step
  tokens_.reserve(size_t{num_blocks} * block_size);
}

// ---- looking up ----

void PrefixCache::match(std::span<const TokenId> tokens, uint64_t salt, Prefix& found) const {
  found = {};
  // By group, how many consecutive blocks up to here exist.
  std::vector<uint32_t> there(num_groups());
  uint64_t hash = salt;
  NodeId node = kNoNode;
  uint32_t rows = 0;
  for (size_t end = block_size_; end < tokens.size(); end += block_size_) {
    const auto own = tokens.subspan(end - block_size_, block_size_);
    hash = hash_(own, hash);
    node = find(hash, node, own, salt);
    if (node == kNoNode) break;
    ++rows;
    bool enough = true;
    for (uint32_t group = 0; group < num_groups(); ++group) {
      there[group] = block(node, group) == kNoBlock ? 0 : there[group] + 1;
      const uint32_t first = first_block(windows_[group], static_cast<uint32_t>(end), block_size_);
      enough = enough && there[group] >= rows - first;
    }
    if (!enough) continue;
    found.num_rows = rows;
    found.node = node;
  }
  rows = found.num_rows;
  found.blocks.assign(size_t{rows} * num_groups(), kNoBlock);
  node = found.node;
  for (uint32_t row = rows; row-- > 0; node = nodes_[node].parent) {
    for (uint32_t group = 0; group < num_groups(); ++group) {
      if (row < first_block(windows_[group], rows * block_size_, block_size_)) continue;
      found.blocks[size_t{group} * rows + row] = block(node, group);
    }
  }
}

std::span<const TokenId> PrefixCache::tokens_of(NodeId node) const {
  return std::span(tokens_).subspan(size_t{node} * block_size_, block_size_);
}

NodeId PrefixCache::find(uint64_t hash, NodeId parent, std::span<const TokenId> tokens, uint64_t salt) const {
  const auto is_it = [&](const Node& known, NodeId node) {
    return known.hash == hash && known.parent == parent && known.salt == salt &&
           std::ranges::equal(tokens_of(node), tokens);
  };
  NodeId node = buckets_[hash & (buckets_.size() - 1)];
  while (node != kNoNode && !is_it(nodes_[node], node)) node = nodes_[node].next_in_bucket;
  return node;
}

NodeId PrefixCache::ancestor(NodeId node, uint32_t num_blocks) const {
  while (node != kNoNode && nodes_[node].depth >= num_blocks) node = nodes_[node].parent;
  return node;
}

std::vector<NodeId> PrefixCache::nodes() const {
  std::vector<NodeId> out;
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].used) out.push_back(node);
  }
  std::ranges::stable_sort(out, {}, [this](NodeId node) { return nodes_[node].depth; });
  return out;
}

// ---- putting in ----

NodeId PrefixCache::publish(NodeId parent, std::span<const TokenId> tokens, uint64_t salt) {
  const uint64_t hash = hash_(tokens, parent == kNoNode ? salt : nodes_[parent].hash);
  if (const NodeId known = find(hash, parent, tokens, salt); known != kNoNode) return known;

  const NodeId made = make_node();
  Node& node = nodes_[made];
  node = Node{.used = true, .hash = hash, .salt = salt, .parent = parent};
  if (parent != kNoNode) {
    node.depth = nodes_[parent].depth + 1;
    node.next_sibling = std::exchange(nodes_[parent].first_child, made);
    if (node.next_sibling != kNoNode) nodes_[node.next_sibling].previous_sibling = made;
  }
  node.next_in_bucket = std::exchange(bucket(hash), made);
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(made) * block_size_);
  return made;
}

NodeId PrefixCache::make_node() {
  if (!free_nodes_.empty()) {
    const NodeId node = free_nodes_.back();
    free_nodes_.pop_back();
    return node;
  }
  const auto node = static_cast<NodeId>(nodes_.size());
  nodes_.emplace_back();
  free_nodes_.reserve(nodes_.capacity());  // erase_empty() allocates nothing
  tokens_.resize(tokens_.size() + block_size_);
  blocks_.resize(blocks_.size() + num_groups(), kNoBlock);
  if (nodes_.size() > buckets_.size()) widen_buckets();
  return node;
}

void PrefixCache::widen_buckets() {
  buckets_.assign(buckets_.size() * 2, kNoNode);
  for (NodeId node = 0; node < nodes_.size(); ++node) {
    if (nodes_[node].used) nodes_[node].next_in_bucket = std::exchange(bucket(nodes_[node].hash), node);
  }
}

BlockId PrefixCache::attach(NodeId node, uint32_t group, BlockId block) {
  BlockId& known = blocks_[size_t{node} * num_groups() + group];
  if (known != kNoBlock) return known;
  known = block;
  places_[block] = {.node = node, .group = group};
  use(block);
  return block;
}

void PrefixCache::pin(NodeId node) {
  if (node == kNoNode) return;
  ++nodes_[node].pins;
  ++num_pins_;
}

void PrefixCache::unpin(NodeId node) {
  if (node == kNoNode) return;
  --nodes_[node].pins;
  --num_pins_;
  erase_empty(node);
}

// ---- taking out ----

void PrefixCache::use(BlockId block) {
  Place& place = places_[block];
  if (std::exchange(place.idle, false)) --num_idle_;
  const Node& node = nodes_[place.node];
  const bool alone = windows_[place.group] != 0 || node.parent == kNoNode;
  const BlockId parent = alone ? kNoBlock : this->block(node.parent, place.group);
  eviction_->use({block, parent, node.hash + place.group, uint64_t{node.depth} * block_size_});
}

void PrefixCache::want(const TokenList& tokens, uint64_t salt, int32_t more) {
  const auto rows = static_cast<uint32_t>((tokens.size() - 1) / block_size_);
  num_wanted_ += static_cast<uint64_t>(int64_t{more} * rows);
  if (!eviction_->counts_queue()) return;
  uint64_t hash = salt;
  NodeId node = kNoNode;
  for (uint32_t row = 0; row < rows; ++row) {
    const auto own = std::span(tokens).subspan(size_t{row} * block_size_, block_size_);
    hash = hash_(own, hash);
    if (row == 0 || node != kNoNode) node = find(hash, node, own, salt);
    for (uint32_t group = 0; group < num_groups(); ++group) {
      if (row < first_block(windows_[group], rows * block_size_, block_size_)) continue;
      const BlockId cached = node == kNoNode ? kNoBlock : block(node, group);
      eviction_->want(hash + group, cached, more);
    }
  }
}

void PrefixCache::idle(BlockId block) {
  places_[block].idle = true;
  ++num_idle_;
  eviction_->idle(block);
}

BlockId PrefixCache::evict() {
  BlockId block = eviction_->victim();
  if (block == kNoBlock) return kNoBlock;
  NodeId node = places_[block].node;
  if (windows_[places_[block].group] == 0) {
    // The end of the chain. A table that held a block there would also hold this one, so all blocks of that
    // node are idle.
    while (nodes_[node].first_child != kNoNode) node = nodes_[node].first_child;
    for (uint32_t group = 0; group < num_groups(); ++group) {
      if (this->block(node, group) != kNoBlock) block = this->block(node, group);
    }
  }
  blocks_[size_t{node} * num_groups() + places_[block].group] = kNoBlock;
  places_[block] = {};
  --num_idle_;
  eviction_->remove(block);
  erase_empty(node);
  return block;
}

/// Removes the node from the index, and then its ancestors, as far as nothing needs them.
void PrefixCache::erase_empty(NodeId node) {
  while (node != kNoNode) {
    const auto own = std::span(blocks_).subspan(size_t{node} * num_groups(), num_groups());
    const bool empty = std::ranges::all_of(own, [](BlockId block) { return block == kNoBlock; });
    if (!empty || nodes_[node].pins > 0 || nodes_[node].first_child != kNoNode) return;
    const Node old = std::exchange(nodes_[node], {});
    NodeId* link = &bucket(old.hash);
    while (*link != node) link = &nodes_[*link].next_in_bucket;
    *link = old.next_in_bucket;
    if (old.next_sibling != kNoNode) nodes_[old.next_sibling].previous_sibling = old.previous_sibling;
    if (old.previous_sibling != kNoNode) {
      nodes_[old.previous_sibling].next_sibling = old.next_sibling;
    } else if (old.parent != kNoNode) {
      nodes_[old.parent].first_child = old.next_sibling;
    }
    free_nodes_.push_back(node);
    node = old.parent;
  }
}

}  // namespace quire::control
