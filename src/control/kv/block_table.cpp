#include "control/kv/block_table.h"

#include "control/kv/windows.h"

namespace quire::control {

bool BlockTable::prefix(const BlockPool& pool, uint32_t tokens, Prefix& found) const {
  const uint32_t size = pool.block_size();
  const uint32_t rows = (tokens + size - 1) / size;
  found.num_rows = rows;
  found.node = pool.cache().ancestor(node_, tokens / size);
  found.blocks.clear();
  for (uint32_t group = 0; group < num_groups(); ++group) {
    const uint32_t first = first_block(pool.cache().windows()[group], tokens, size);
    for (uint32_t row = 0; row < rows; ++row) {
      if (row >= first && columns_[group][row] == kNoBlock) return false;
      found.blocks.push_back(row < first ? kNoBlock : columns_[group][row]);
    }
  }
  return true;
}

void BlockTable::share(BlockPool& pool, const Prefix& prefix) {
  for (uint32_t group = 0; group < num_groups(); ++group) {
    const auto from = prefix.blocks.begin() + static_cast<ptrdiff_t>(group) * prefix.num_rows;
    columns_[group].assign(from, from + prefix.num_rows);
    for (const BlockId block : columns_[group]) {
      if (block != kNoBlock) pool.retain(block);
    }
  }
  node_ = prefix.node;
  pool.pin(node_);
}

uint64_t BlockTable::room(const BlockPool& pool, uint32_t position) const {
  const bool in_last = position < uint64_t{size()} * pool.block_size();
  uint32_t copies = 0;
  for (const auto& column : columns_) copies += in_last && !pool.writable(column.back()) ? 1 : 0;
  if (copies > pool.available()) return 0;
  const uint32_t left = pool.available() - copies;
  return (uint64_t{size()} + left / num_groups()) * pool.block_size() - position;
}

void BlockTable::prepare_write(BlockPool& pool, uint32_t position, uint32_t count,
                               std::vector<BlockCopy>& copies) {
  const uint64_t end = uint64_t{position} + count;
  const bool in_last = position < uint64_t{size()} * pool.block_size();
  const uint32_t last = size() - 1;
  for (uint32_t group = 0; group < num_groups(); ++group) {
    auto& column = columns_[group];
    if (in_last && !pool.writable(column.back())) {
      const BlockId copy = pool.allocate();
      copies.push_back({column.back(), copy});
      pool.release(std::exchange(column.back(), copy));
      changed_.write().push_back({group, last});
    }
    while (column.size() * pool.block_size() < end) column.push_back(pool.allocate());
  }
}

void BlockTable::append(BlockPool& pool, std::span<const BlockId> wanted) {
  for (uint32_t group = 0; group < num_groups(); ++group) {
    columns_[group].push_back(wanted[group] == kNoBlock ? kNoBlock : pool.allocate());
  }
}

void BlockTable::publish(BlockPool& pool, uint32_t index, std::span<const TokenId> tokens, uint64_t salt) {
  const NodeId node = pool.publish(node_, tokens, salt);
  for (uint32_t group = 0; group < num_groups(); ++group) {
    BlockId& own = columns_[group][index];
    if (own == kNoBlock) continue;
    const BlockId canonical = pool.attach(node, group, own);
    if (canonical != std::exchange(own, canonical)) changed_.write().push_back({group, index});
  }
  pool.pin(node);
  pool.unpin(std::exchange(node_, node));
}

void BlockTable::release_behind(BlockPool& pool, uint32_t computed) {
  if (computed == 0) return;
  for (uint32_t group = 0; group < num_groups(); ++group) {
    const uint32_t window = pool.cache().windows()[group];
    if (window == 0) continue;
    auto& column = columns_[group];
    // The blocks before were released already, without a gap.
    const uint32_t end = std::min(first_block(window, computed - 1, pool.block_size()), size());
    for (uint32_t row = end; row-- > 0;) {
      if (column[row] == kNoBlock) break;
      pool.release(std::exchange(column[row], kNoBlock));
    }
  }
}

void BlockTable::clear(BlockPool& pool) {
  for (uint32_t row = size(); row-- > 0;) {
    for (auto& column : columns_) {
      if (column[row] != kNoBlock) pool.release(column[row]);
    }
  }
  for (auto& column : columns_) column.clear();
  pool.unpin(std::exchange(node_, kNoNode));
  changed_ = {};
}

}  // namespace quire::control
