#include "control/block_table.h"

#include <utility>

namespace quire {

void BlockTable::share(BlockPool& pool, std::span<const BlockId> blocks) {
  for (const BlockId block : blocks) {
    pool.retain(block);
    blocks_.push_back(block);
  }
}

uint64_t BlockTable::room(const BlockPool& pool, uint32_t position) const {
  const uint32_t index = position / pool.block_size();
  const bool copy = index < size() && !pool.writable(blocks_[index]);
  if (copy && pool.available() == 0) return 0;
  const uint64_t blocks = uint64_t{size()} + pool.available() - (copy ? 1 : 0);
  return blocks * pool.block_size() - position;
}

void BlockTable::prepare_write(BlockPool& pool, uint32_t position, uint32_t count,
                               std::vector<BlockCopy>& copies) {
  const uint32_t first = position / pool.block_size();
  const uint32_t last = (position + count - 1) / pool.block_size();
  if (first < size() && !pool.writable(blocks_[first])) {
    const BlockId copy = pool.allocate();
    copies.push_back({blocks_[first], copy});
    pool.release(blocks_[first]);
    blocks_[first] = copy;
    changed_.push_back(first);
  }
  while (size() <= last) blocks_.push_back(pool.allocate());
}

void BlockTable::publish(BlockPool& pool, uint32_t index, std::span<const TokenId> tokens, uint64_t salt) {
  const BlockId parent = index == 0 ? kNoBlock : blocks_[index - 1];
  const BlockId canonical = pool.publish(blocks_[index], parent, tokens, salt);
  if (canonical != std::exchange(blocks_[index], canonical)) changed_.push_back(index);
}

std::vector<uint32_t> BlockTable::take_changed() { return std::exchange(changed_, {}); }

void BlockTable::clear(BlockPool& pool) {
  for (; !blocks_.empty(); blocks_.pop_back()) pool.release(blocks_.back());
  changed_.clear();
}

}  // namespace quire
