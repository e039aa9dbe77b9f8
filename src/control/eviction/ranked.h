#pragma once

#include <cstdint>
#include <utility>
#include <vector>

#include "control/eviction/block_heap.h"
#include "control/eviction/eviction.h"

namespace quire::control {

/// Base of the policies that rank blocks: of the idle blocks at the ends of chains, the one with the lowest
/// rank is evicted; among equals, the one idle longest. (The index always evicts the end of a chain: if the
/// policy named a bad block inside a chain, a good end would be evicted.) Each block is in one of two queues.
/// Each call is O(log blocks).
class RankedEviction : public EvictionPolicy {
 public:
  explicit RankedEviction(uint32_t num_blocks)
      : entries_(num_blocks), ends_{BlockHeap(num_blocks), BlockHeap(num_blocks)} {}

  void use(const CachedBlock& block) final {
    Entry& entry = withdraw(entries_[block.block]);
    entry.idle = false;
    if (entry.uses++ == 0) {
      entry.of = block;
      ++sizes_[entry.queue];
      if (block.parent != kNoBlock) ++entries_[block.parent].children;
    }
    used(entry);
  }
  void idle(BlockId block) final {
    entries_[block].idle = true;
    entries_[block].order = ++releases_;
    offer(entries_[block]);
  }
  void remove(BlockId block) final {
    const Entry old = std::exchange(withdraw(entries_[block]), Entry{});
    --sizes_[old.queue];
    removed(old);
    if (old.of.parent != kNoBlock && --entries_[old.of.parent].children == 0) offer(entries_[old.of.parent]);
  }
  BlockId victim() override { return first(0); }
  bool empty() const final { return ends_[0].empty() && ends_[1].empty(); }

 protected:
  struct Entry {
    CachedBlock of;
    uint64_t rank = 0;
    uint64_t order = 0;     // in which blocks became idle
    uint32_t uses = 0;      // 0: not cached
    uint32_t children = 0;  // cached blocks right after it in their chains
    uint32_t queue = 0;
    bool idle = false;
  };

  /// The block was just used; for the first time if `uses` is 1.
  virtual void used(Entry& entry) = 0;
  virtual void removed(const Entry& /*entry*/) {}

  void move(Entry& entry, uint32_t queue, uint64_t rank) {
    withdraw(entry).rank = rank;
    --sizes_[entry.queue];
    ++sizes_[entry.queue = queue];
    offer(entry);
  }
  Entry& entry(BlockId block) { return entries_[block]; }
  uint32_t num_blocks() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t size(uint32_t queue) const { return sizes_[queue]; }  // including held blocks
  BlockId first(uint32_t queue) const { return ends_[queue].first(); }

 private:
  void offer(const Entry& entry) {
    if (entry.idle && entry.children == 0)
      ends_[entry.queue].insert({entry.rank, entry.order, entry.of.block});
  }
  Entry& withdraw(Entry& entry) {
    if (entry.idle && entry.children == 0) ends_[entry.queue].erase(entry.of.block);
    return entry;
  }

  std::vector<Entry> entries_;  // by block
  BlockHeap ends_[2];           // by queue
  uint32_t sizes_[2] = {};
  uint64_t releases_ = 0;
};

}  // namespace quire::control
