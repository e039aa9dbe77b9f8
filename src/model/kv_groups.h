#pragma once

#include <cstdint>
#include <vector>

#include "model/config.h"

namespace quire::model {

/// How the K/V of a model's layers shares one pool of equal blocks. The layers of one window form a group, or
/// several of about as many layers each where another window has fewer: a block holds the tokens of all
/// layers of one group, and any block can serve any group.
struct KvGroups {
  std::vector<uint32_t> windows;   // of each group, 0: all; those that see all come first
  std::vector<uint32_t> of_layer;  // the group of each layer
  std::vector<uint32_t> place;     // of each layer within its group, < layers_per_block
  uint32_t layers_per_block = 0;   // of the largest group; the others leave the rest of a block unused
};

/// One group for most models. Otherwise as many layers a block as waste least, first where a layer sees all,
/// then elsewhere, in at most kMaxKvGroups groups. A window that no sequence can leave is none.
inline constexpr uint32_t kMaxKvGroups = 8;
KvGroups group_layers(const ModelConfig& config);

/// A table for each group, of `rows` blocks each: first, first + 1, ... For who needs no block pool.
std::vector<std::vector<BlockId>> consecutive_tables(uint32_t num_groups, uint32_t rows, BlockId first);

}  // namespace quire::model
