#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "control/kv/block_pool.h"

namespace quire::record {

/// A node of the prefix index by itself: the tokens of one block after those of another node.
struct PrefixNode {
  static constexpr uint32_t kRoot = UINT32_MAX;
  uint32_t parent = kRoot;  // an earlier one of the list
  uint64_t salt = 0;
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;  // one a K/V group; kNoBlock: not cached
};

/// All of the index; of `blocks`, those that nobody holds are cached.
std::vector<PrefixNode> snapshot(const control::PrefixCache& cache);

/// Puts nodes into the index, as cached, before any sequence comes. In `nodes` each block becomes the one
/// that was given for it, whose K/V the caller provides; kNoBlock where none was free, or where in a group
/// that sees all the block before it is missing. Deterministic. REQUIRES: parents are earlier in the list,
/// and tokens and blocks as many as a block has and as there are groups.
void restore(control::BlockPool& pool, std::vector<PrefixNode>& nodes);

}  // namespace quire::record
