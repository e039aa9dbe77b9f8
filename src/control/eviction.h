#pragma once

#include <cstdint>
#include <memory>

#include "base/ids.h"

namespace quire {

/// What an eviction policy may know of a block in the prefix index.
struct CachedBlock {
  BlockId block = kNoBlock;
  uint64_t hash = 0;   // of the whole prefix that ends with it; survives eviction, unlike `block`
  uint32_t depth = 0;  // blocks before it in its chain
};

/// Chooses which of the cached blocks that nobody holds ("idle") gives way. It proposes; the index evicts the
/// end of the chain through that block, so that under any policy no block outlives its parent.
/// Deterministic: decides by the order of these calls alone. All calls but victim() should be O(1) or near.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  /// A sequence takes the block: it has just published it, hits it, or shares it. Not idle from now on.
  virtual void use(const CachedBlock& block) = 0;
  /// Its last holder let go. Those of a chain come deepest first.
  virtual void idle(BlockId block) = 0;
  /// It left the index. It was idle.
  virtual void remove(BlockId block) = 0;
  /// An idle block, kNoBlock if there is none. Changes nothing: remove() follows if it is taken.
  virtual BlockId victim() const = 0;
};

/// Least recently used: the block that has been idle for longest. As the blocks of a chain become idle
/// deepest first, children precede their parents. All calls O(1).
std::unique_ptr<EvictionPolicy> make_lru_eviction(uint32_t num_blocks);

}  // namespace quire
