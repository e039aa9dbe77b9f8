#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/kv_blocks.h"
#include "backend/cuda/runtime.h"
#include "base/ids.h"
#include "model/config.h"
#include "model/kv_groups.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// The K/V of all layers in one pool of blocks on the device; any block can serve any K/V group. A block has
/// one part per layer of a group (layout: kv_blocks.h). Parts with the same place in their groups form one
/// array of num_blocks contiguous parts.
class KvCache {
 public:
  /// Throws Error if the device has too little memory.
  KvCache(const model::ModelConfig& config, DType dtype, uint32_t num_blocks, uint32_t block_size)
      : blocks_{dtype, block_size, config.num_kv_heads, config.head_dim},
        num_blocks_(num_blocks),
        groups_(model::group_layers(config)),
        memory_(blocks_.block_bytes() * num_blocks * groups_.layers_per_block, "the K/V blocks") {}

  const KvBlocks& blocks() const { return blocks_; }
  const DeviceBuffer& memory() const { return memory_; }
  uint32_t num_blocks() const { return num_blocks_; }
  const model::KvGroups& groups() const { return groups_; }
  uint32_t num_groups() const { return static_cast<uint32_t>(groups_.windows.size()); }
  /// The array of the parts that belong to this layer in the blocks of its group.
  std::byte* layer(uint32_t index) const { return parts(groups_.place[index]); }
  /// The bytes of a block in all layers of its group.
  size_t whole_block_bytes() const { return groups_.layers_per_block * blocks_.block_bytes(); }
  /// Of all parts with the same place.
  size_t array_bytes() const { return size_t{num_blocks_} * blocks_.block_bytes(); }
  /// Calls each(memory, bytes) for the parts of a block, in the order of their places.
  template <class Each>
  void for_each_part(BlockId block, const Each& each) const {
    for (uint32_t place = 0; place < groups_.layers_per_block; ++place) {
      each(parts(place) + size_t{block} * blocks_.block_bytes(), blocks_.block_bytes());
    }
  }

 private:
  /// The array of the parts with this place, below layers_per_block.
  std::byte* parts(uint32_t place) const { return memory_.data() + place * array_bytes(); }

  KvBlocks blocks_;
  uint32_t num_blocks_;
  model::KvGroups groups_;
  DeviceBuffer memory_;
};

}  // namespace quire::backend::cuda
