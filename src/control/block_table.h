#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "control/block_pool.h"
#include "control/step.h"

namespace quire {

/// A sequence's blocks in the order of its tokens: token p lies in blocks()[p / block size]. Holds one
/// reference in the pool for each; clear() before it goes. Every call gets the same pool. Not thread-safe.
class BlockTable {
 public:
  std::span<const BlockId> blocks() const { return blocks_; }
  uint32_t size() const { return static_cast<uint32_t>(blocks_.size()); }

  /// Appends blocks that others hold or that are cached, one reference more for each.
  void share(BlockPool& pool, std::span<const BlockId> blocks);

  /// How many tokens could be written from `position` (at most the end of the table) on, with all that the
  /// pool can give.
  uint64_t room(const BlockPool& pool, uint32_t position) const;

  /// Makes [position, position + count) writable. Appends what blocks are missing; the block of `position`,
  /// if it is shared or published, is replaced by a copy of it: the copy goes to `copies`, its index to
  /// take_changed(). REQUIRES: 0 < count <= room(position).
  void prepare_write(BlockPool& pool, uint32_t position, uint32_t count, std::vector<BlockCopy>& copies);

  /// Publishes the full block at `index`, whose tokens are `tokens`; all before it are published. If another
  /// block has the same contents already, that one takes its place, and `index` goes to take_changed().
  void publish(BlockPool& pool, uint32_t index, std::span<const TokenId> tokens, uint64_t salt);

  /// Entries that were replaced since the last call.
  std::vector<uint32_t> take_changed();

  /// Releases all, the last first, so that a cached chain is evicted from its end.
  void clear(BlockPool& pool);

 private:
  std::vector<BlockId> blocks_;
  std::vector<uint32_t> changed_;
};

}  // namespace quire
