#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/rare_list.h"
#include "base/short_vector.h"
#include "control/kv/block_pool.h"
#include "control/step.h"

namespace quire::control {

/// The block tables of a sequence, one column per K/V group. A row has one block per group and covers
/// block_size tokens: token p is in blocks(group)[p / block size] of every group. An entry behind a group's
/// window is kNoBlock. Holds one reference in the pool for each block, and one pin in the prefix index; call
/// clear() before destruction. Every call gets the same pool. Not thread-safe.
class BlockTable {
 public:
  explicit BlockTable(uint32_t num_groups = 1) : columns_(num_groups) {}

  uint32_t num_groups() const { return static_cast<uint32_t>(columns_.size()); }
  uint32_t size() const { return static_cast<uint32_t>(columns_.front().size()); }  // rows
  std::span<const BlockId> blocks(uint32_t group = 0) const { return columns_[group]; }
  NodeId node() const { return node_; }  // of its last published block

  /// Sets `found` to the blocks of its first `tokens` tokens and returns true, if the table still has all
  /// blocks that the token after them reads.
  bool prefix(const BlockPool& pool, uint32_t tokens, Prefix& found) const;

  /// Takes its first rows from `prefix`, with one more reference to each block. REQUIRES: empty.
  void share(BlockPool& pool, const Prefix& prefix);

  /// Appends a row of new blocks; kNoBlock where `wanted` has it. REQUIRES: the pool has enough blocks.
  void append(BlockPool& pool, std::span<const BlockId> wanted);

  /// How many tokens could be written from `position` on (in the last row, or at the start of the next), with
  /// all available blocks of the pool.
  uint64_t room(const BlockPool& pool, uint32_t position) const;

  /// Whether prepare_write has nothing to do and take_changed returns nothing.
  bool is_ready(const BlockPool& pool, uint32_t position, uint32_t count) const {
    return changed_.empty() && uint64_t{position} + count <= uint64_t{size()} * pool.block_size() &&
           std::ranges::all_of(columns_, [&](const auto& column) { return pool.writable(column.back()); });
  }

  /// Makes [position, position + count) writable. Appends the missing rows. A block of the last row that is
  /// shared or published is replaced by a copy: the copy goes to `copies`, its entry to take_changed().
  /// REQUIRES: 0 < count <= room(position).
  void prepare_write(BlockPool& pool, uint32_t position, uint32_t count, std::vector<BlockCopy>& copies);

  /// Publishes the full row at `index`, whose tokens are `tokens`; all rows before it are published. Blocks
  /// already published with the same contents replace those of the row; their entries go to take_changed().
  void publish(BlockPool& pool, uint32_t index, std::span<const TokenId> tokens, uint64_t salt);

  /// Releases the blocks that neither the token before position `computed` nor any later token reads (see
  /// windows.h).
  void release_behind(BlockPool& pool, uint32_t computed);

  struct Entry {
    uint32_t group = 0;
    uint32_t index = 0;
    friend bool operator==(const Entry&, const Entry&) = default;
  };
  RareList<Entry> take_changed() { return std::exchange(changed_, {}); }  // replaced since the last call

  /// Releases all blocks, the last first, so that a cached chain is evicted from its end.
  void clear(BlockPool& pool);

 private:
  ShortVector<std::vector<BlockId>, 1> columns_;  // by group, all of one length
  NodeId node_ = kNoNode;
  RareList<Entry> changed_;
};

}  // namespace quire::control
