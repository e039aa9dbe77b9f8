#pragma once

#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "control/kv/block_pool.h"

namespace quire::record {

/// A node of the prefix index as plain data: the tokens of one block after those of another node.
struct PrefixNode {
  static constexpr uint32_t kRoot = UINT32_MAX;
  uint32_t parent = kRoot;  // index of an earlier node in the list
  uint64_t salt = 0;
  std::vector<TokenId> tokens;
  std::vector<BlockId> blocks;  // one per K/V group; kNoBlock: not cached
  friend bool operator==(const PrefixNode&, const PrefixNode&) = default;
};

/// The whole index, with cached and with held blocks.
std::vector<PrefixNode> snapshot(const control::PrefixCache& cache);

/// Puts nodes into the index as cached blocks, before the first sequence. Replaces each block in `nodes` by
/// the pool's block for it, whose K/V the caller provides; kNoBlock if none was free, or if in a
/// full-attention group the block before it is missing. Deterministic. REQUIRES: parents are earlier in the
/// list, each node has the tokens of one block, and one entry in `blocks` per group.
void restore(control::BlockPool& pool, std::vector<PrefixNode>& nodes);

}  // namespace quire::record
