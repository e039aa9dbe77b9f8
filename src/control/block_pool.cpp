#include "control/block_pool.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace quire {

BlockPool::BlockPool(PrefixCache cache, DecisionLog* log)
    : cache_(std::move(cache)), log_(log), references_(cache_.num_blocks()), free_(cache_.num_blocks()) {
  std::iota(free_.rbegin(), free_.rend(), BlockId{0});  // block 0 is handed out first
}

BlockId BlockPool::allocate() {
  BlockId block = kNoBlock;
  if (!free_.empty()) {
    block = free_.back();
    free_.pop_back();
  } else {
    block = cache_.evict();
    if (block == kNoBlock) return kNoBlock;
    ++num_evictions_;
    tell(DecisionKind::kEvict, block);
  }
  references_[block] = 1;
  tell(DecisionKind::kAllocate, block);
  return block;
}

void BlockPool::retain(BlockId block) {
  const uint32_t before = references_[block]++;
  if (before == 1) ++num_shared_;
  if (before >= 1) ++num_saved_;
  if (cache_.contains(block)) cache_.use(block);
  tell(DecisionKind::kShare, block);
}

void BlockPool::release(BlockId block) {
  const uint32_t left = --references_[block];
  tell(DecisionKind::kRelease, block);
  if (left == 1) --num_shared_;
  if (left >= 1) {
    --num_saved_;
  } else if (cache_.contains(block)) {
    cache_.idle(block);
  } else {
    free_.push_back(block);
  }
}

BlockId BlockPool::attach(NodeId node, uint32_t group, BlockId block) {
  const BlockId canonical = cache_.attach(node, group, block);
  if (canonical != block) {
    retain(canonical);
    release(block);
  }
  return canonical;
}

void BlockPool::drop_cached() {
  for (BlockId block = cache_.evict(); block != kNoBlock; block = cache_.evict()) {
    tell(DecisionKind::kEvict, block);
    free_.push_back(block);
  }
}

std::string BlockPool::check_invariants() const {
  if (std::string wrong = cache_.check_invariants(); !wrong.empty()) return wrong;
  std::vector<bool> is_free(size());
  for (const BlockId block : free_) {
    if (is_free[block]) return fmt::format("block {} is twice in the free list", block);
    is_free[block] = true;
  }
  uint32_t num_shared = 0;
  uint64_t num_saved = 0;
  for (BlockId block = 0; block < size(); ++block) {
    const bool referenced = references_[block] > 0;
    const bool cached = !referenced && cache_.contains(block);
    if ((is_free[block] ? 1 : 0) + (referenced ? 1 : 0) + (cached ? 1 : 0) != 1) {
      return fmt::format("block {} is not in exactly one state (free {}, references {}, cached {})", block,
                         is_free[block], references_[block], cached);
    }
    if (cached != cache_.is_idle(block)) return fmt::format("block {}: the index counts it wrongly", block);
    if (references_[block] > 1) ++num_shared;
    if (referenced) num_saved += references_[block] - 1;
  }
  if (num_shared != num_shared_ || num_saved != num_saved_) return "the counts of shared blocks are wrong";
  return {};
}

}  // namespace quire
