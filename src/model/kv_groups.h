#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace quire::model {

/// How the K/V of a model's layers shares one pool of blocks of equal size. The layers of one window form a
/// group, or several groups of about equal size if another window has fewer layers. A block holds the K/V of
/// all layers of one group, and any block can serve any group.
struct KvGroups {
  std::vector<uint32_t> windows;   // per group; 0: full attention, and these come first
  std::vector<uint32_t> of_layer;  // per layer: its group
  std::vector<uint32_t> place;     // per layer: its place within the group, < layers_per_block
  uint32_t layers_per_block = 0;   // layers of the largest group; the others leave the rest of a block unused
};

/// One group for most models. Otherwise the number of layers per block is chosen to waste the least memory,
/// first in full-attention groups, then in the others, with at most kMaxKvGroups groups. A window that is
/// longer than any sequence counts as full attention.
inline constexpr uint32_t kMaxKvGroups = 8;
KvGroups group_layers(const ModelConfig& config);

/// A block table for each group, of `rows` blocks each: first, first + 1, ... For callers without a block
/// pool.
std::vector<std::vector<BlockId>> consecutive_tables(uint32_t num_groups, uint32_t rows, BlockId first);

}  // namespace quire::model
