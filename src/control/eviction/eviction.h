#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "base/ids.h"

namespace quire::control {

/// What an eviction policy may know about a block in the prefix index.
struct CachedBlock {
  BlockId block = kNoBlock;
  BlockId parent =
      kNoBlock;  // the block before it in its chain, if that must stay as long as this block does
  uint64_t hash =
      0;  // of the whole prefix that ends with this block, and of its group; the same after an eviction
  uint64_t position = 0;  // tokens before it
};

/// Chooses which of the idle blocks (cached: published, and held by no block table) is evicted. It proposes;
/// the index evicts the end of the chain through that block, so that under any policy no block outlives its
/// parent. Deterministic: it decides by the order of these calls alone. Each call should be O(1) or O(log
/// blocks).
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;

  /// A sequence takes the block: it has just published it, hits it, or shares it. The block is not idle from
  /// now on. The parent of a block is always used before the block.
  virtual void use(const CachedBlock& block) = 0;
  /// The last table released the block. The blocks of a chain are released deepest first.
  virtual void idle(BlockId block) = 0;
  /// The block left the index. It was idle.
  virtual void remove(BlockId block) = 0;
  /// Whether want() has an effect.
  virtual bool counts_queue() const { return false; }
  /// `more` waiting sequences more than before have this block's tokens. kNoBlock: the tokens are not cached.
  virtual void want(uint64_t /*hash*/, BlockId /*block*/, int32_t /*more*/) {}
  /// An idle block, kNoBlock if there is none. The call may change later choices: call it only to evict.
  virtual BlockId victim() = 0;
  virtual bool empty() const = 0;  // no block is idle
};

// One row per policy: its enumerator, its name on the command line, its factory function. A new policy is a
// file in this folder that defines its factory function, and a row here; one that ranks blocks derives from
// RankedEviction (ranked.h), which ranks ends of chains only. It also needs a naive model in
// tests/control/eviction_test.cpp and a row in both tables of docs/control-plane.md, and it changes the
// digests in tests/control/scheduler_property_test.cpp: random stories draw among one policy more.
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
#define QUIRE_ROW(kind, name, make) EvictionKind::kind,
inline constexpr EvictionKind kEvictionKinds[] = {QUIRE_EVICTION_POLICIES(QUIRE_ROW)};
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
