#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/ids.h"

namespace quire::control {

/// What an eviction policy may know of a block in the prefix index.
struct CachedBlock {
  BlockId block = kNoBlock;
  BlockId parent = kNoBlock;  // the one before it in its chain, if that must stay as long as this does
  uint64_t hash = 0;          // of the whole prefix that ends with it, and of its group; survives eviction
  uint64_t position = 0;      // tokens before it
};

/// Chooses which of the cached blocks that nobody holds ("idle") gives way. It proposes; the index evicts the
/// end of the chain through that block, so that under any policy no block outlives its parent.
/// Deterministic: decides by the order of these calls alone. All of them should be O(1) or O(log blocks).
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  /// A sequence takes the block: it has just published it, hits it, or shares it. Not idle from now on.
  /// Whoever uses a block uses its parent first.
  virtual void use(const CachedBlock& block) = 0;
  /// Its last holder let go. Those of a chain come deepest first.
  virtual void idle(BlockId block) = 0;
  /// It left the index. It was idle.
  virtual void remove(BlockId block) = 0;
  /// So many more waiting sequences than before have this block's tokens. kNoBlock: it is not cached. Returns
  /// false if the policy does not ask.
  virtual bool want(uint64_t /*hash*/, BlockId /*block*/, int32_t /*more*/) { return false; }
  /// An idle block, kNoBlock if there is none. May change later choices: ask to evict, not to look.
  virtual BlockId victim() = 0;
  virtual bool empty() const = 0;  // no block is idle
};

// One row a policy: its enumerator, its name on the command line, its maker. A new policy is a file in this
// folder that defines its maker, and a row here.
#define QUIRE_EVICTION_POLICIES(ROW)  \
  ROW(kLru, "lru", make_lru)          \
  ROW(kLfu, "lfu", make_lfu)          \
  ROW(kCost, "cost", make_cost)       \
  ROW(kGdf, "gdf", make_gdf)          \
  ROW(kArc, "arc", make_arc)          \
  ROW(kS3Fifo, "s3fifo", make_s3fifo) \
  ROW(kQueueLru, "queue-lru", make_queue_lru)

#define QUIRE_ROW(kind, name, make) kind,
enum class EvictionKind : uint8_t { QUIRE_EVICTION_POLICIES(QUIRE_ROW) };
#undef QUIRE_ROW
#define QUIRE_ROW(kind, name, make) name,
inline constexpr std::string_view kEvictionNames[] = {QUIRE_EVICTION_POLICIES(QUIRE_ROW)};
#undef QUIRE_ROW
#define QUIRE_ROW(kind, name, make) std::unique_ptr<EvictionPolicy> make(uint32_t num_blocks);
QUIRE_EVICTION_POLICIES(QUIRE_ROW)
#undef QUIRE_ROW

constexpr std::string_view name(EvictionKind kind) { return kEvictionNames[static_cast<size_t>(kind)]; }

inline std::unique_ptr<EvictionPolicy> make_eviction(EvictionKind kind, uint32_t num_blocks) {
#define QUIRE_ROW(kind, name, make) make,
  constexpr std::unique_ptr<EvictionPolicy> (*kMakers[])(uint32_t) = {QUIRE_EVICTION_POLICIES(QUIRE_ROW)};
#undef QUIRE_ROW
  return kMakers[static_cast<size_t>(kind)](num_blocks);
}

}  // namespace quire::control
