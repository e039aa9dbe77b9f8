#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/rope.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kMostThreads = 128;

/// Two stretches of a head that one thread handles, kWidth elements each. Of those that are not rotated, the
/// second is half of them behind the first too: so neighbouring threads have neighbouring elements.
struct Pair {
  uint32_t low;
  uint32_t high;
};
__device__ __forceinline__ Pair pair_of(uint32_t i, uint32_t rotary, uint32_t head_dim) {
  if (i < rotary / 2) return {i, i + rotary / 2};
  const uint32_t low = rotary / 2 + i;
  return {low, low + (head_dim - rotary) / 2};
}

/// kWidth elements as f32: one, or a piece.
template <uint32_t kWidth>
struct Some {
  float at[kWidth];
};
template <uint32_t kWidth, class T>
__device__ __forceinline__ Some<kWidth> load_some(const T* from) {
  Some<kWidth> out;
  if constexpr (kWidth == 1) {
    out.at[0] = to_float(*from);
  } else {
    QUIRE_UNROLL
    for (uint32_t part = 0; part < kWidth; part += kPiece<T>) {
      const Floats<T> piece = unpack<T>(ptx::load_128(from + part));
      QUIRE_UNROLL
      for (uint32_t j = 0; j < kPiece<T>; ++j) out.at[part + j] = piece.at[j];
    }
  }
  return out;
}
template <uint32_t kWidth, class T>
__device__ __forceinline__ void store_some(T* to, const Some<kWidth>& values) {
  if constexpr (kWidth == 1) {
    *to = from_float<T>(values.at[0]);
  } else {
    Floats<T> piece;
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kWidth; ++j) piece.at[j] = values.at[j];
    ptx::store_128(to, pack<T>(piece));
  }
}

/// A row's pairs are shared among blocks (y) of `threads` threads each.
template <class T, uint32_t kWidth>
__global__ void __launch_bounds__(kMostThreads) rope_kernel(RopeArgs args, uint32_t threads) {
  let_next_begin();
  wait_for_earlier();
  const KvBlocks& blocks = args.blocks;
  const uint32_t of_head = blocks.head_dim / 2 / kWidth;
  const uint32_t key_heads = args.num_heads + blocks.num_kv_heads;
  const uint32_t all_heads = key_heads + blocks.num_kv_heads;
  const uint32_t p = block_y() * threads + thread_x();
  if (p >= all_heads * of_head) return;
  const uint32_t head = p / of_head;
  const uint32_t i = p % of_head * kWidth;
  const bool is_value = head >= key_heads;
  const Pair pair = pair_of(i, is_value ? 0 : args.rotary, blocks.head_dim);
  T* from = static_cast<T*>(args.qkv) + (size_t{block_x()} * all_heads + head) * blocks.head_dim;
  Some<kWidth> low = load_some<kWidth>(from + pair.low);
  Some<kWidth> high = load_some<kWidth>(from + pair.high);
  if (!is_value && i < args.rotary / 2) {
    const float* cosine = args.cos_sin + size_t{args.positions[block_x()]} * args.rotary + i;
    const Some<kWidth> c = load_some<kWidth>(cosine);
    const Some<kWidth> s = load_some<kWidth>(cosine + args.rotary / 2);
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kWidth; ++j) {
      const float rotated = low.at[j] * c.at[j] - high.at[j] * s.at[j];
      high.at[j] = high.at[j] * c.at[j] + low.at[j] * s.at[j];
      low.at[j] = rotated;
    }
  }
  T* to = from;
  if (head >= args.num_heads) {
    const uint32_t place = args.places[block_x()];
    to = static_cast<T*>(args.cache) + place / blocks.block_size * blocks.block_elements() +
         place % blocks.block_size * blocks.head_dim +
         blocks.k_of_head((head - args.num_heads) % blocks.num_kv_heads);
    if (is_value) to += blocks.v_after_k();
  }
  store_some<kWidth>(to + pair.low, low);
  store_some<kWidth>(to + pair.high, high);
}

template <class T, uint32_t kWidth>
LaunchError rotate(const RopeArgs& args, Stream stream) {
  const uint32_t pairs =
      (args.num_heads + 2 * args.blocks.num_kv_heads) * (args.blocks.head_dim / 2 / kWidth);
  const uint32_t threads = threads_for(pairs, kMostThreads);
  const LaunchShape shape{{args.rows, (pairs + threads - 1) / threads}, threads, 0, stream, Begins::kEarly};
  return launch("rope", shape, rope_kernel<T, kWidth>, args, threads);
}

}  // namespace

LaunchError rope(const RopeArgs& args, Stream stream) {
  return for_element(args.blocks.dtype, [&](auto type) {
    using T = decltype(type);
    // Halves of what is rotated, of what is not and of a head consist of sectors of memory.
    constexpr uint32_t kBoth = 4 * kPiece<T>;
    const bool in_pieces = args.rotary % kBoth == 0 && args.blocks.head_dim % kBoth == 0;
    return in_pieces ? rotate<T, kPiece<T>>(args, stream) : rotate<T, 1>(args, stream);
  });
}

}  // namespace quire::backend::cuda
