#include "control/kv/block_pool.h"

#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace quire::control {

BlockPool::BlockPool(PrefixCache cache)
    : cache_(std::move(cache)), references_(cache_.num_blocks()), free_(cache_.num_blocks()) {
  std::iota(free_.rbegin(), free_.rend(), BlockId{0});  // block 0 is allocated first
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
    log_.write(DecisionKind::kEvict, block);
  }
  references_[block] = 1;
  log_.write(DecisionKind::kAllocate, block);
  return block;
}

void BlockPool::retain(BlockId block) {
  const uint32_t before = references_[block]++;
  if (before == 1) ++num_shared_;
  if (before >= 1) ++num_saved_;
  if (cache_.contains(block)) cache_.use(block);
  log_.write(DecisionKind::kShare, block);
}

void BlockPool::release(BlockId block) {
  const uint32_t left = --references_[block];
  log_.write(DecisionKind::kRelease, block);
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
  if (canonical == block) {
    log_.because({.kind = CauseKind::kPublished, .a = block});
  } else {
    retain(canonical);
    release(block);
  }
  return canonical;
}

void BlockPool::drop_cached() {
  for (BlockId block = cache_.evict(); block != kNoBlock; block = cache_.evict()) {
    log_.write(DecisionKind::kEvict, block);
    free_.push_back(block);
  }
}

}  // namespace quire::control
