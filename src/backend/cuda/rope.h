#pragma once

#include <cstdint>

#include "backend/cuda/kv_blocks.h"
#include "backend/cuda/stream.h"

namespace quire::backend::cuda {

/// Rotates the queries of each row in place, and writes its keys, rotated, and its values into K/V blocks.
/// Pairs are (i, i + rotary / 2) (the "half-split" form of Hugging Face checkpoints); elements from `rotary`
/// on stay as they are. Su et al. 2021. Computed in f32.
struct RopeArgs {
  KvBlocks blocks;  // qkv is of its dtype
  void* qkv;        // [rows, (num_heads + 2 num_kv_heads) * head_dim]: queries, keys, values
  uint32_t num_heads;
  uint32_t rotary;            // even, at most head_dim
  const float* cos_sin;       // [positions][rotary]: cosines in the first half of a row, sines in the second
  const uint32_t* positions;  // [rows], of cos_sin
  const uint32_t* places;     // [rows]: block number * block size + place in the block; no two the same
  void* cache;                // at a multiple of 16 bytes
  uint32_t rows;
};
[[nodiscard]] LaunchError rope(const RopeArgs& args, Stream stream);

}  // namespace quire::backend::cuda
