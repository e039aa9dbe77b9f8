#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/rope.h"
#include "backend/cuda/rotation.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kMostThreads = 128;

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
  const uint32_t all_heads = args.num_heads + 2 * blocks.num_kv_heads;
  const uint32_t p = block_y() * threads + thread_x();
  if (p >= all_heads * of_head) return;
  const uint32_t head = p / of_head;
  const uint32_t i = p % of_head * kWidth;
  const uint32_t rotary = is_value(args, head) ? 0 : args.rotary;
  const Pair pair = pair_of(i, rotary, blocks.head_dim);
  const T* from = static_cast<const T*>(args.qkv) + (size_t{block_x()} * all_heads + head) * blocks.head_dim;
  Some<kWidth> low = load_some<kWidth>(from + pair.low);
  Some<kWidth> high = load_some<kWidth>(from + pair.high);
  if (i < rotary / 2) {
    const float* cosine = args.cos_sin + size_t{args.positions[block_x()]} * rotary + i;
    const Some<kWidth> c = load_some<kWidth>(cosine);
    const Some<kWidth> s = load_some<kWidth>(cosine + rotary / 2);
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kWidth; ++j) rotate_pair(low.at[j], high.at[j], c.at[j], s.at[j]);
  }
  T* to = place_of<T>(args, block_x(), head);
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
