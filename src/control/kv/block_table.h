#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/short_vector.h"
#include "control/kv/block_pool.h"
#include "control/step.h"

namespace quire::control {

/// A sequence's blocks, a row of one block a K/V group for each block size of its tokens: token p lies in
/// blocks(group)[p / block size] of every group. Where a group's window has moved on, the entry is kNoBlock.
/// Holds one reference in the pool for each block, and one pin in the prefix index for all; clear() before it
/// goes. Every call gets the same pool. Not thread-safe.
class BlockTable {
 public:
  explicit BlockTable(uint32_t num_groups = 1) : columns_(num_groups) {}

  uint32_t num_groups() const { return static_cast<uint32_t>(columns_.size()); }
  uint32_t size() const { return static_cast<uint32_t>(columns_.front().size()); }  // rows
  std::span<const BlockId> blocks(uint32_t group = 0) const { return columns_[group]; }
  NodeId node() const { return node_; }  // of its last full block, as far as they are published

  /// Sets `found` to the blocks of its first `tokens` tokens and returns true, if those are still there that
  /// the token after them reads.
  bool prefix(const BlockPool& pool, uint32_t tokens, Prefix& found) const;

  /// The first rows, which others hold or which are cached: one reference more for each block.
  /// REQUIRES: empty.
  void share(BlockPool& pool, const Prefix& prefix);

  /// Appends a row of new blocks; kNoBlock in the groups for which `wanted` has kNoBlock.
  /// REQUIRES: the pool has them.
  void append(BlockPool& pool, std::span<const BlockId> wanted);

  /// How many tokens could be written from `position` on (in the last row, or where the next begins), with
  /// all that the pool can give.
  uint64_t room(const BlockPool& pool, uint32_t position) const;

  /// Nothing is left to do for prepare_write, and nothing to take for take_changed.
  bool is_ready(const BlockPool& pool, uint32_t position, uint32_t count) const {
    return changed_.empty() && uint64_t{position} + count <= uint64_t{size()} * pool.block_size() &&
           std::ranges::all_of(columns_, [&](const auto& column) { return pool.writable(column.back()); });
  }

  /// Makes [position, position + count) writable. Appends what rows are missing; a block of the last row that
  /// is shared or published is replaced by a copy of it: the copy goes to `copies`, its entry to
  /// take_changed(). REQUIRES: 0 < count <= room(position).
  void prepare_write(BlockPool& pool, uint32_t position, uint32_t count, std::vector<BlockCopy>& copies);

  /// Publishes the full row at `index`, whose tokens are `tokens`; all before it are published. Blocks that
  /// hold the same contents already take the place of its own; their entries go to take_changed().
  void publish(BlockPool& pool, uint32_t index, std::span<const TokenId> tokens, uint64_t salt);

  /// Gives back what no token from position `computed` on reads, nor the token before it (see kv_windows.h).
  void release_behind(BlockPool& pool, uint32_t computed);

  struct Entry {
    uint32_t group = 0;
    uint32_t index = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  std::vector<Entry> take_changed() { return std::exchange(changed_, {}); }  // replaced since the last call

  /// Releases all, the last first, so that a cached chain is evicted from its end.
  void clear(BlockPool& pool);

 private:
  ShortVector<std::vector<BlockId>, 1> columns_;  // by group, all of one length
  NodeId node_ = kNoNode;
  std::vector<Entry> changed_;
};

}  // namespace quire::control
