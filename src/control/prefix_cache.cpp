#include "control/prefix_cache.h"

#include <algorithm>
#include <bit>
#include <utility>
#include <xxhash.h>

#include <fmt/format.h>

namespace quire {

uint64_t PrefixCache::xxh3(std::span<const TokenId> tokens, uint64_t parent_hash) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), parent_hash);
}

PrefixCache::PrefixCache(uint32_t num_blocks, uint32_t block_size, std::unique_ptr<EvictionPolicy> eviction,
                         Hash hash)
    : block_size_(block_size),
      eviction_(std::move(eviction)),
      hash_(hash),
      entries_(num_blocks),
      tokens_(size_t{num_blocks} * block_size),
      buckets_(std::bit_ceil(size_t{num_blocks} + 1), kNoBlock) {}

void PrefixCache::match(std::span<const TokenId> tokens, uint64_t salt, std::vector<BlockId>& hits) const {
  hits.clear();
  uint64_t hash = salt;
  BlockId parent = kNoBlock;
  for (size_t end = block_size_; end < tokens.size(); end += block_size_) {
    const auto own = tokens.subspan(end - block_size_, block_size_);
    hash = hash_(own, hash);
    parent = find(hash, parent, own, salt);
    if (parent == kNoBlock) return;
    hits.push_back(parent);
  }
}

BlockId PrefixCache::publish(BlockId block, BlockId parent, std::span<const TokenId> tokens, uint64_t salt) {
  const uint64_t hash = hash_(tokens, parent == kNoBlock ? salt : entries_[parent].hash);
  if (const BlockId known = find(hash, parent, tokens, salt); known != kNoBlock) return known;

  Entry& entry = entries_[block];
  entry = Entry{.published = true, .hash = hash, .salt = salt, .parent = parent};
  if (parent != kNoBlock) {
    entry.depth = entries_[parent].depth + 1;
    entry.next_sibling = std::exchange(entries_[parent].first_child, block);
    if (entry.next_sibling != kNoBlock) entries_[entry.next_sibling].previous_sibling = block;
  }
  entry.next_in_bucket = std::exchange(buckets_[hash & (buckets_.size() - 1)], block);
  std::copy(tokens.begin(), tokens.end(), tokens_.begin() + static_cast<ptrdiff_t>(block) * block_size_);
  use(block);
  return block;
}

void PrefixCache::use(BlockId block) {
  Entry& entry = entries_[block];
  if (std::exchange(entry.idle, false)) --num_idle_;
  eviction_->use({block, entry.hash, entry.depth});
}

void PrefixCache::idle(BlockId block) {
  entries_[block].idle = true;
  ++num_idle_;
  eviction_->idle(block);
}

BlockId PrefixCache::evict() {
  BlockId block = eviction_->victim();
  if (block == kNoBlock) return kNoBlock;
  while (entries_[block].first_child != kNoBlock) block = entries_[block].first_child;
  remove(block);
  return block;
}

std::span<const TokenId> PrefixCache::tokens_of(BlockId block) const {
  return std::span(tokens_).subspan(size_t{block} * block_size_, block_size_);
}

BlockId PrefixCache::find(uint64_t hash, BlockId parent, std::span<const TokenId> tokens,
                          uint64_t salt) const {
  BlockId block = buckets_[hash & (buckets_.size() - 1)];
  for (; block != kNoBlock; block = entries_[block].next_in_bucket) {
    const Entry& entry = entries_[block];
    if (entry.hash == hash && entry.parent == parent && entry.salt == salt &&
        std::ranges::equal(tokens_of(block), tokens)) {
      break;
    }
  }
  return block;
}

/// Takes an idle block without children out of the index.
void PrefixCache::remove(BlockId block) {
  Entry& entry = entries_[block];
  BlockId* link = &buckets_[entry.hash & (buckets_.size() - 1)];
  while (*link != block) link = &entries_[*link].next_in_bucket;
  *link = entry.next_in_bucket;

  if (entry.next_sibling != kNoBlock) {
    entries_[entry.next_sibling].previous_sibling = entry.previous_sibling;
  }
  if (entry.previous_sibling != kNoBlock) {
    entries_[entry.previous_sibling].next_sibling = entry.next_sibling;
  } else if (entry.parent != kNoBlock) {
    entries_[entry.parent].first_child = entry.next_sibling;
  }
  entry = {};
  --num_idle_;
  eviction_->remove(block);
}

std::string PrefixCache::check_invariants() const {
  uint32_t num_idle = 0;
  uint32_t num_children = 0;
  for (BlockId block = 0; block < num_blocks(); ++block) {
    const Entry& entry = entries_[block];
    if (!entry.published) {
      if (entry.idle) return fmt::format("block {} is idle but not published", block);
      continue;
    }
    num_idle += entry.idle ? 1 : 0;
    if (entry.parent != kNoBlock) {
      const Entry& parent = entries_[entry.parent];
      if (!parent.published) return fmt::format("block {} outlived its parent {}", block, entry.parent);
      if (parent.idle && !entry.idle) return fmt::format("block {} is held, its parent is not", block);
      if (parent.salt != entry.salt) return fmt::format("block {} has another salt than its parent", block);
      if (parent.depth + 1 != entry.depth) return fmt::format("block {} has a wrong depth", block);
    }
    const uint64_t parent_hash = entry.parent == kNoBlock ? entry.salt : entries_[entry.parent].hash;
    if (hash_(tokens_of(block), parent_hash) != entry.hash) {
      return fmt::format("block {} has a wrong hash", block);
    }
    if (find(entry.hash, entry.parent, tokens_of(block), entry.salt) != block) {
      return fmt::format("block {} is not found by its contents", block);
    }
    for (BlockId child = entry.first_child; child != kNoBlock; child = entries_[child].next_sibling) {
      if (entries_[child].parent != block) return fmt::format("block {} has a wrong child", block);
      if (++num_children > this->num_blocks()) return "a list of children is a loop";
    }
  }
  for (BlockId block = 0; block < num_blocks(); ++block) {
    num_children -= entries_[block].parent != kNoBlock ? 1 : 0;
  }
  if (num_children != 0) return "a child is not in its parent's list";
  if (num_idle != num_idle_) return fmt::format("{} blocks idle, {} counted", num_idle, num_idle_);
  const BlockId victim = eviction_->victim();
  if ((victim == kNoBlock) != (num_idle == 0)) return "the eviction policy lost or invented a block";
  if (victim != kNoBlock && !entries_[victim].idle) return fmt::format("victim {} is not idle", victim);
  return {};
}

}  // namespace quire
