#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/attention_spans.h"
#include "backend/cuda/attention_tile.h"
#include "backend/cuda/paged_attention.h"

// What a block of threads of paged_attention works on, and where it reads and writes.
namespace quire::backend::cuda {

inline constexpr uint32_t kScores = kSpanScores;

/// What a block works on.
template <class Shape>
struct Work {
  QueryTile tile;
  uint32_t group;
  uint32_t rows;
  uint32_t keys_from;  // those that the block goes through
  uint32_t keys_to;
  uint32_t whole_from;  // the keys that all rows see
  uint32_t whole_to;

  __device__ __forceinline__ explicit Work(const PagedAttentionArgs& args) : tile(args.tiles[block_z()]) {
    group = args.num_heads / args.blocks.num_kv_heads;
    rows = tile.num_tokens * group;
    keys_from = first_key(tile.first_position + 1, args.window);
    keys_to = tile.first_position + tile.num_tokens;
    if (args.shared_spans != 0) {
      const uint32_t span = keys_from / kSpanKeys + block_x();
      keys_from = keys_from > span * kSpanKeys ? keys_from : span * kSpanKeys;
      keys_to = keys_to < (span + 1) * kSpanKeys ? keys_to : (span + 1) * kSpanKeys;
    }
    whole_from = first_key(tile.first_position + tile.num_tokens, args.window);
    whole_to = tile.first_position + 1;
  }

  /// Computed where it is needed, in few tiles: registers have no room for it. `first`: the stack's row.
  __device__ __forceinline__ SeenKeys seen_from(const PagedAttentionArgs& args, uint32_t first) const {
    SeenKeys seen;
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      const uint32_t row = first + thread_x() % kWarp / 4 + r * 8;
      seen.end[r] = row < rows ? tile.first_position + row / group + 1 : 0;
      seen.begin[r] = first_key(seen.end[r], args.window);
    }
    return seen;
  }

  __device__ __forceinline__ uint32_t first_span_end() const {
    return keys_from / kSpanKeys * kSpanKeys + kSpanKeys;
  }

  /// Of a row of the tile: the row of q and out, and the head.
  __device__ __forceinline__ size_t out_row(uint32_t row) const { return tile.first_row + row / group; }
  __device__ __forceinline__ size_t out_head(uint32_t row) const { return block_y() * group + row % group; }
  __device__ __forceinline__ static uint32_t first_row_of_warp() {
    return thread_x() / kWarp / Shape::kSharers * Shape::kRowsOfWarp;
  }
  /// Of the results that a warp has of its rows.
  template <uint32_t kDim>
  __device__ __forceinline__ static uint32_t first_dimension_of_warp() {
    return Shape::kSharers == 1 ? 0 : thread_x() / kWarp % Shape::kSharers * (kDim / Shape::kSharers);
  }
  __device__ __forceinline__ static uint32_t row_of_lane(uint32_t stack, uint32_t r) {
    return first_row_of_warp() + stack * kStackRows + thread_x() % kWarp / 4 + r * 8;
  }
};

/// The cap of q.k, which is multiplied with the scale later. Kept, it is not computed before the loop over
/// tiles, where no registers are left for it.
__device__ __forceinline__ float cap_of_products(const PagedAttentionArgs& args) {
  return kept(ptx::product(args.soft_cap, ptx::reciprocal_approx(args.scale)));
}

/// The queries of the tile into shared memory; of kRows, those that it does not have are zeros.
template <class T, uint32_t kDim, uint32_t kRows, class Shape>
__device__ __forceinline__ void load_queries(const PagedAttentionArgs& args, const Work<Shape>& work,
                                             T* memory) {
  constexpr uint32_t kRowPieces = kDim / kPiece<T>;
  for (uint32_t i = thread_x(); i < kRows * kRowPieces; i += Shape::kThreads) {
    const uint32_t row = i / kRowPieces;
    const uint32_t d = i % kRowPieces * kPiece<T>;
    ptx::Vec128 piece = {};
    if (row < work.rows) {
      const T* from =
          static_cast<const T*>(args.q) + work.out_row(row) * args.q_stride + work.out_head(row) * kDim + d;
      piece = ptx::load_readonly_128(from);
    }
    ptx::store_shared_128(memory + row * kMemoryRow<T, kDim> + d, piece);
  }
}

/// Where the partials of a row's head lie: first all results, then all pairs of maximum and sum.
struct SpanPartials {
  float* results;  // [span][head_dim]
  float* scores;   // [span][kScores]
  __device__ SpanPartials(const PagedAttentionArgs& args, size_t row, size_t head) {
    const size_t which = (row * args.num_heads + head) * args.shared_spans;
    const size_t all = size_t{args.num_rows} * args.num_heads * args.shared_spans;
    results = args.partials + which * args.blocks.head_dim;
    scores = args.partials + all * args.blocks.head_dim + which * kScores;
  }
};

}  // namespace quire::backend::cuda
