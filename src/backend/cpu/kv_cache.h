#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "model/kv_groups.h"
#include "tensor/buffer.h"
#include "tensor/dtype.h"

namespace quire::backend::cpu {

/// The K/V of all layers in one pool of blocks; any block can serve any K/V group. A block has one part per
/// layer of a group. Parts with the same place in their groups form one array of num_blocks contiguous parts
/// (layout: kernels/attention.h).
class KvCache {
 public:
  KvCache(const model::ModelConfig& config, DType dtype, uint32_t num_blocks, uint32_t block_size);
  DType dtype() const { return dtype_; }
  uint32_t num_blocks() const { return num_blocks_; }
  uint32_t block_size() const { return block_size_; }
  size_t block_bytes() const { return block_bytes_; }  // of one layer
  const model::KvGroups& groups() const { return groups_; }
  uint32_t num_groups() const { return static_cast<uint32_t>(groups_.windows.size()); }
  /// The array of the parts that belong to this layer in the blocks of its group.
  std::byte* layer(uint32_t index) { return parts(groups_.place[index]); }
  /// Has the memory of the first so many blocks found and cleared now. REQUIRES: at most num_blocks().
  void touch(ThreadPool& pool, uint32_t blocks);
  /// Copies block `from` of `source` to block `to`, for all layers of its group. Both caches have the same
  /// model and type.
  void copy_block(const KvCache& source, BlockId from, BlockId to);
  /// Reads or writes all of a block, to keep it elsewhere; `bytes` has whole_block_bytes().
  size_t whole_block_bytes() const { return groups_.layers_per_block * block_bytes_; }
  void read_block(BlockId block, std::span<std::byte> bytes) const;
  void write_block(BlockId block, std::span<const std::byte> bytes);

 private:
  std::byte* parts(uint32_t place) { return data_.data() + size_t{place} * num_blocks_ * block_bytes_; }
  const std::byte* parts(uint32_t place) const {
    return data_.data() + size_t{place} * num_blocks_ * block_bytes_;
  }

  DType dtype_;
  uint32_t num_blocks_;
  uint32_t block_size_;
  size_t block_bytes_;
  model::KvGroups groups_;
  Buffer data_;
};

}  // namespace quire::backend::cpu
