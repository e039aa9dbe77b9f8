#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/stream.h"

namespace quire::backend::cuda {

/// Copies K/V blocks with all their parts: for each i, block pairs[2 i] to block pairs[2 i + 1]. The parts of
/// one place are an array, and array_bytes behind it begins the next (KvCache). What nobody wrote of a block
/// is not written in its copy either.
/// REQUIRES: no block that is written is among the others of the call; `part_bytes`, `array_bytes` and the
/// address of the cache are multiples of 16.
struct CopyBlocksArgs {
  void* cache;
  size_t part_bytes;
  size_t array_bytes;
  uint32_t arrays;
  const uint32_t* pairs;  // [2 * count], on the device
  uint32_t count;
};
[[nodiscard]] LaunchError copy_blocks(const CopyBlocksArgs& args, Stream stream);

}  // namespace quire::backend::cuda
