#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/ptx_float.h"
#include "backend/cuda/rope.h"

// What the kernels that rotate queries and keys share.
namespace quire::backend::cuda {

/// Where two stretches of a head begin that are rotated together, or that are not rotated: of these, the
/// second is half of them behind the first too, so that neighbouring threads have neighbouring elements.
/// `i`: where a stretch lies in half a head.
struct Pair {
  uint32_t low;
  uint32_t high;
};
__device__ __forceinline__ Pair pair_of(uint32_t i, uint32_t rotary, uint32_t head_dim) {
  if (i < rotary / 2) return {i, i + rotary / 2};
  const uint32_t low = rotary / 2 + i;
  return {low, low + (head_dim - rotary) / 2};
}

/// Rotates one pair of elements. A fused operation would round a kernel's results as its compiler chose.
__device__ __forceinline__ void rotate_pair(float& low, float& high, float cosine, float sine) {
  const float rotated = ptx::product(low, cosine) - ptx::product(high, sine);
  high = ptx::product(high, cosine) + ptx::product(low, sine);
  low = rotated;
}

/// A head of a row of the projection: queries, then keys, then values.
__device__ __forceinline__ bool is_value(const RopeArgs& args, uint32_t head) {
  return head >= args.num_heads + args.blocks.num_kv_heads;
}

/// Where its rotated elements go: queries stay, keys and values go to their place in a block.
template <class T>
__device__ __forceinline__ T* place_of(const RopeArgs& args, uint32_t row, uint32_t head) {
  const KvBlocks& blocks = args.blocks;
  if (head < args.num_heads) {
    const uint32_t all_heads = args.num_heads + 2 * blocks.num_kv_heads;
    return static_cast<T*>(args.qkv) + (size_t{row} * all_heads + head) * blocks.head_dim;
  }
  const uint32_t place = args.places[row];
  T* to = static_cast<T*>(args.cache) + place / blocks.block_size * blocks.block_elements() +
          place % blocks.block_size * blocks.head_dim +
          blocks.k_of_head((head - args.num_heads) % blocks.num_kv_heads);
  return is_value(args, head) ? to + blocks.v_after_k() : to;
}

}  // namespace quire::backend::cuda
