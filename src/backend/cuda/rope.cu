#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/rope.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kMostThreads = 128;

/// Two elements of a head that one thread handles. Of those that are not rotated, a pair is half of them
/// apart too: so neighbouring threads have neighbouring elements.
struct Pair {
  uint32_t low;
  uint32_t high;
};
__device__ __forceinline__ Pair pair_of(uint32_t i, uint32_t rotary, uint32_t head_dim) {
  if (i < rotary / 2) return {i, i + rotary / 2};
  const uint32_t low = rotary / 2 + i;
  return {low, low + (head_dim - rotary) / 2};
}

/// One block a row, one thread a pair of each head it comes to.
template <class T>
__global__ void __launch_bounds__(kMostThreads) rope_kernel(RopeArgs args, uint32_t threads) {
  const KvBlocks& blocks = args.blocks;
  const uint32_t half = blocks.head_dim / 2;
  const uint32_t key_heads = args.num_heads + blocks.num_kv_heads;
  const uint32_t all_heads = key_heads + blocks.num_kv_heads;
  T* row = static_cast<T*>(args.qkv) + size_t{block_x()} * all_heads * blocks.head_dim;
  const float* cosine = args.cos_sin + size_t{args.positions[block_x()]} * args.rotary;
  const uint32_t place = args.places[block_x()];
  T* token = static_cast<T*>(args.cache) + place / blocks.block_size * blocks.block_elements() +
             place % blocks.block_size * blocks.head_dim;
  for (uint32_t p = thread_x(); p < all_heads * half; p += threads) {
    const uint32_t head = p / half;
    const uint32_t i = p % half;
    const bool is_value = head >= key_heads;
    const Pair pair = pair_of(i, is_value ? 0 : args.rotary, blocks.head_dim);
    T* from = row + head * blocks.head_dim;
    float low = to_float(from[pair.low]);
    float high = to_float(from[pair.high]);
    if (!is_value && i < args.rotary / 2) {
      const float c = cosine[i];
      const float s = cosine[i + args.rotary / 2];
      const float rotated = low * c - high * s;
      high = high * c + low * s;
      low = rotated;
    }
    T* to = from;
    if (head >= args.num_heads) {
      to = token + blocks.k_of_head((head - args.num_heads) % blocks.num_kv_heads);
      if (is_value) to += blocks.v_after_k();
    }
    to[pair.low] = from_float<T>(low);
    to[pair.high] = from_float<T>(high);
  }
}

}  // namespace

LaunchError rope(const RopeArgs& args, Stream stream) {
  return for_element(args.blocks.dtype, [&](auto type) {
    const uint32_t pairs = (args.num_heads + 2 * args.blocks.num_kv_heads) * args.blocks.head_dim / 2;
    const uint32_t threads = threads_for(pairs, kMostThreads);
    const LaunchShape shape{{args.rows}, threads, 0, stream};
    return launch("rope", shape, rope_kernel<decltype(type)>, args, threads);
  });
}

}  // namespace quire::backend::cuda
