#pragma once

#include <cstdint>

#include "backend/cuda/attention_tile.h"
#include "backend/cuda/attention_work.h"
#include "backend/cuda/kv_stream.h"

// How the four warps of a block compute attention of a tile with at most one stack of rows, where a warp for
// each stack would leave three idle: they divide the keys of two tiles to score and weigh them, and then the
// dimensions of the values. Each bit is that of a warp which goes through the tiles alone: a score is the
// same sum, a maximum is, and what is added to a sum or a result comes in the same order.
namespace quire::backend::cuda {

inline constexpr uint32_t kFewTogether = 2;  // tiles

/// What the warps tell each other of the tiles that they compute together, behind the stages of their stream.
template <uint32_t kDim>
class FewExchange {
  static constexpr uint32_t kParts = kFewTogether * kTileKeys / kColumns;

 public:
  static constexpr uint32_t kBytes =
      kStackRows * kWarps * sizeof(float) + kParts * kWarp * sizeof(ptx::Vec128);

  __device__ __forceinline__ explicit FewExchange(void* memory)
      : maxima_(static_cast<float*>(memory)),
        parts_(reinterpret_cast<ptx::Vec128*>(maxima_ + kStackRows * kWarps) + thread_x() % kWarp) {}

  /// Of the lane's rows over the warp's keys; four lanes have the same.
  __device__ __forceinline__ void tell_maxima(const float (&maxima)[kRowsOfLane]) {
    if (thread_x() % 4 != 0) return;
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) maxima_[row(r) * kWarps + thread_x() / kWarp] = maxima[r];
  }
  /// Of one of the lane's rows over each warp's keys.
  __device__ __forceinline__ ptx::Accumulator maxima(uint32_t r) const {
    return __builtin_bit_cast(ptx::Accumulator, ptx::load_shared_128(maxima_ + row(r) * kWarps));
  }
  /// `part`: of the keys of both tiles, the eight.
  __device__ __forceinline__ void tell_weights(uint32_t part, const ptx::Accumulator& weights) {
    ptx::store_shared_128(parts_ + part * kWarp, __builtin_bit_cast(ptx::Vec128, weights));
  }
  __device__ __forceinline__ Scores weights(uint32_t tile) const {
    Scores all;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTileKeys / kColumns; ++i) {
      const ptx::Vec128* from = parts_ + (tile * (kTileKeys / kColumns) + i) * kWarp;
      all.at[i] = __builtin_bit_cast(ptx::Accumulator, ptx::load_shared_128(from));
    }
    return all;
  }

 private:
  __device__ __forceinline__ static uint32_t row(uint32_t r) { return thread_x() % kWarp / 4 + r * 8; }

  float* maxima_;       // [row][warp]
  ptx::Vec128* parts_;  // the lane's, [part][lane]
};

/// Of lane l, where row l % 8 of matrix l / 8 begins in a tile of a swizzled stream: the matrices begin at
/// column `column` of key `key`, and lie as those of matrix_row().
template <class T, uint32_t kDim, bool kDownFirst>
__device__ __forceinline__ uint32_t swizzled_matrix_row(uint32_t key, uint32_t column) {
  const uint32_t lane = thread_x() % kWarp;
  const uint32_t odd = lane / 8 % 2;
  const uint32_t high = lane / 16;
  const uint32_t piece = column / kPiece<T> + (kDownFirst ? high : odd);
  return (key + lane % 8 + 8 * (kDownFirst ? odd : high)) * kDim + (piece ^ lane % 8) * kPiece<T>;
}

/// The warp's share of the keys of kFewTogether tiles: 16, of one of them.
struct FewKeys {
  static constexpr uint32_t kKeys = kFewTogether * kTileKeys / kWarps;
  static constexpr uint32_t kParts = kKeys / kColumns;
  static_assert(kKeys == 2 * kColumns);  // what one load of matrices has

  ptx::Accumulator at[kParts];

  __device__ __forceinline__ static uint32_t tile() { return thread_x() / kWarp * kKeys / kTileKeys; }
  __device__ __forceinline__ static uint32_t first() { return thread_x() / kWarp * kKeys % kTileKeys; }

  /// `keys`: of the tile.
  template <class T, uint32_t kDim>
  __device__ __forceinline__ void score(const T* keys, const Queries<kDim, 1>& queries) {
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kParts; ++i) at[i] = {};
    QUIRE_UNROLL
    for (uint32_t d = 0; d < kDim; d += kDepth) {
      const ptx::Matrices b =
          ptx::load_matrices<false>(keys + swizzled_matrix_row<T, kDim, false>(first(), d));
      ptx::multiply_add<T>(at[0], queries.at[0][d / kDepth], b.words[0], b.words[1]);
      ptx::multiply_add<T>(at[1], queries.at[0][d / kDepth], b.words[2], b.words[3]);
    }
  }

  /// As mask_tile(). `tile`: its first key.
  __device__ __forceinline__ void mask(uint32_t tile, const SeenKeys& seen) {
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      QUIRE_UNROLL
      for (uint32_t i = 0; i < kParts * 2; ++i) {
        const uint32_t key = tile + first() + thread_x() % 4 * 2 + i / 2 * kColumns + i % 2;
        if (key < seen.begin[r] || key >= seen.end[r]) at[i / 2].at[r * 2 + i % 2] = kMinusInfinity;
      }
    }
  }

  __device__ __forceinline__ float maximum(uint32_t r) const {
    float max = kMinusInfinity;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kParts * 2; ++i) max = larger(max, at[i / 2].at[r * 2 + i % 2]);
    return quad_max(max);
  }

  /// `maxima`: of the lane's rows with this tile.
  __device__ __forceinline__ void weigh(float scale, const float (&maxima)[kRowsOfLane]) {
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      QUIRE_UNROLL
      for (uint32_t i = 0; i < kParts * 2; ++i) {
        float& weight = at[i / 2].at[r * 2 + i % 2];
        weight = ptx::exp2_approx(ptx::fused(weight, scale, -maxima[r]));
      }
    }
  }
};

/// Adds the values of a tile to the warp's share of the dimensions.
template <class T, uint32_t kDim>
__device__ __forceinline__ void add_few_values(const T* values, const Scores& weights,
                                               RowState<kDim / kWarps>& state) {
  const uint32_t first = thread_x() / kWarp * (kDim / kWarps);
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTileKeys / kColumns * 2; ++i) {
      state.sums[r] += weights.at[i / 2].at[r * 2 + i % 2];
    }
  }
  QUIRE_UNROLL
  for (uint32_t key = 0; key < kTileKeys; key += kDepth) {
    const ptx::Matrices a = left_side<T>(weights, key);
    QUIRE_UNROLL
    for (uint32_t d = 0; d < kDim / kWarps; d += 2 * kColumns) {
      const ptx::Matrices b =
          ptx::load_matrices<true>(values + swizzled_matrix_row<T, kDim, true>(key, first + d));
      ptx::multiply_add<T>(state.results[d / kColumns], a, b.words[0], b.words[1]);
      ptx::multiply_add<T>(state.results[d / kColumns + 1], a, b.words[2], b.words[3]);
    }
  }
}

/// Where tiles with at most a stack of rows, as decodes have, are computed by all warps of a block together.
/// What these tell each other lies behind the stages, and so do queries before and results after.
template <class T, uint32_t kDim, class Shape>
struct FewQueries {
  static constexpr bool kAreThere = kDim == kWarps * 2 * kColumns && Shape::kStages > 2 * kFewTogether;
  using Stream =
      KvStream<T, kDim, kThreads, kAreThere ? Shape::kStages : 2 * kFewTogether, kFewTogether, kAreThere>;
  static_assert(!kAreThere || Stream::kBytes + FewExchange<kDim>::kBytes <= Shape::kSharedBytes);
  static_assert(!kAreThere || kStackRows * kMemoryRow<T, kDim> * sizeof(T) <= FewExchange<kDim>::kBytes);
};

/// The warp's columns of what a block has of its span or, if it goes through all of them, of its results.
template <class T, uint32_t kDim, bool kShared, class Shape>
__device__ __forceinline__ void store_few(const PagedAttentionArgs& args, const Work<Shape>& work,
                                          const RowState<kDim / kWarps>& state, T* rows) {
  if constexpr (!kShared) sync_block();  // the last weights are loaded
  const uint32_t column = thread_x() / kWarp * (kDim / kWarps) + thread_x() % 4 * 2;
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    const uint32_t row = thread_x() % kWarp / 4 + r * 8;
    const float sum = kShared ? quad_sum(state.sums[r]) : state.sums[r];
    if (row >= work.rows) continue;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kWarps / kColumns; ++i) {
      const float* pair = state.results[i].at + r * 2;
      if constexpr (kShared) {
        const SpanPartials partials(args, work.out_row(row), work.out_head(row));
        ptx::store_64(partials.results + block_x() * kDim + i * kColumns + column, pair[0], pair[1]);
        if (i == 0 && thread_x() < kWarp && thread_x() % 4 < kScores) {
          partials.scores[block_x() * kScores + thread_x() % 4] = thread_x() % 4 == 0 ? state.maxima[r] : sum;
        }
      } else {
        *reinterpret_cast<uint32_t*>(rows + row * kMemoryRow<T, kDim> + i * kColumns + column) =
            pack_pair<T>(pair[0] / sum, pair[1] / sum);
      }
    }
  }
  if constexpr (kShared) return;
  sync_block();
  constexpr uint32_t kRowPieces = kDim / kPiece<T>;
  for (uint32_t i = thread_x(); i < work.rows * kRowPieces; i += kThreads) {
    const uint32_t d = i % kRowPieces * kPiece<T>;
    const uint32_t row = i / kRowPieces;
    T* to = static_cast<T*>(args.out) + (work.out_row(row) * args.num_heads + work.out_head(row)) * kDim + d;
    ptx::store_128(to, ptx::load_shared_128(rows + row * kMemoryRow<T, kDim> + d));
  }
}

/// What attend_rows_kernel does, for a tile with at most a stack of rows. `kv`: before its start.
template <class T, uint32_t kDim, bool kShared, class Shape>
__device__ __forceinline__ void attend_few(const PagedAttentionArgs& args, const Work<Shape>& work,
                                           typename FewQueries<T, kDim, Shape>::Stream& kv, T* memory) {
  using Few = FewQueries<T, kDim, Shape>;
  T* rows = memory + Few::Stream::kBytes / sizeof(T);
  FewExchange<kDim> exchange(rows);  // from the first barrier of the stream on
  kv.start(memory);
  load_queries<T, kDim, kStackRows>(args, work, rows);
  sync_block();
  Queries<kDim, 1> queries;
  queries.load(rows);
  RowState<kDim / kWarps> span;
  span.clear();
  SpansInRegisters<kDim / kWarps, 1> spans(nullptr);
  const float scale = args.scale * kLog2E;
  while (kv.tile() < work.keys_to) {
    const uint32_t first = kv.tile();
    const T* tiles[kFewTogether];
    tiles[0] = kv.next();
    tiles[1] = kv.after(tiles[0]);
    const uint32_t own = first + FewKeys::tile() * kTileKeys;
    FewKeys keys{};
    float maxima[kRowsOfLane] = {kMinusInfinity, kMinusInfinity};
    if (own < work.keys_to) {
      keys.score(FewKeys::tile() == 0 ? tiles[0] : tiles[1], queries);
      if (args.soft_cap != 0.0F) cap_scores(cap_of_products(args), keys.at);
      if (own < work.whole_from || own + kTileKeys > work.whole_to) {
        keys.mask(own, work.seen_from(args, 0));
      }
      QUIRE_UNROLL
      for (uint32_t r = 0; r < kRowsOfLane; ++r) maxima[r] = keys.maximum(r);
    }
    exchange.tell_maxima(maxima);
    sync_block();
    float raised[kFewTogether][kRowsOfLane];
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      const ptx::Accumulator of = exchange.maxima(r);
      raised[0][r] = larger(span.maxima[r], ptx::product(larger(of.at[0], of.at[1]), scale));
      const bool is_new = !kShared && (first + kTileKeys) % kSpanKeys == 0;
      raised[1][r] = larger(is_new ? kLowest : raised[0][r], ptx::product(larger(of.at[2], of.at[3]), scale));
      maxima[r] = FewKeys::tile() == 0 ? raised[0][r] : raised[1][r];
    }
    keys.weigh(scale, maxima);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < FewKeys::kParts; ++i) {
      exchange.tell_weights(thread_x() / kWarp * FewKeys::kParts + i, keys.at[i]);
    }
    sync_block();
    QUIRE_UNROLL
    for (uint32_t t = 0; t < kFewTogether; ++t) {
      const uint32_t then = first + (t + 1) * kTileKeys;
      if (then - kTileKeys >= work.keys_to) break;
      raise_to(raised[t], span);
      add_few_values<T, kDim>(tiles[t] + Few::Stream::kTile, exchange.weights(t), span);
      if constexpr (!kShared) {
        if (then % kSpanKeys == 0 || then >= work.keys_to) spans.add(0, span, then <= work.first_span_end());
      }
    }
  }
  if constexpr (kShared) {
    store_few<T, kDim, kShared>(args, work, span, rows);
  } else {
    store_few<T, kDim, kShared>(args, work, spans.of(0), rows);
  }
}

}  // namespace quire::backend::cuda
