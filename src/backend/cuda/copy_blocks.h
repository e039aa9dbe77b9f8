#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/stream.h"

namespace quire::backend::cuda {

/// Copies K/V blocks within one layer's memory: for each i, block pairs[2 i] to block pairs[2 i + 1].
/// REQUIRES: no block that is written is among the others of the call. `block_bytes` is a multiple of 16, and
/// so is the address of the cache.
struct CopyBlocksArgs {
  void* cache;
  size_t block_bytes;
  const uint32_t* pairs;  // [2 * count], on the device
  uint32_t count;
};
[[nodiscard]] LaunchError copy_blocks(const CopyBlocksArgs& args, Stream stream);

}  // namespace quire::backend::cuda
