#include <algorithm>
#include <iterator>

#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/kv_tile.h"
#include "backend/cuda/paged_attention.h"
#include "backend/cuda/ptx_mma.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kTileRows = 64;                    // queries: tokens by heads of the group
constexpr uint32_t kRowsOfWarp = kTileRows / kWarps;  // those of one multiplication
constexpr uint32_t kRowsOfLane = 2;                   // l / 4 and l / 4 + 8 of a warp's
constexpr uint32_t kColumns = 8;                      // of a multiplication
constexpr uint32_t kDepth = 16;                       // of its sums
constexpr uint32_t kScores = 2;                       // of a partial: its maximum and its sum
static_assert(kRowsOfWarp == 16);

/// Shared memory: a tile of K, one of V, the tile's queries in rows as long as theirs, and the block table of
/// a span. At the end the results lie over all but the table, in f32.
template <class T, uint32_t kDim>
struct TileMemory {
  static constexpr uint32_t kRow = KvTile<T, kDim>::kRow;
  static constexpr uint32_t kResultRow = kDim + 8;  // so that four rows begin in different banks
  static constexpr uint32_t kBytes =
      (2 * kTileKeys + kTileRows) * kRow * sizeof(T) + kMostBlocks * sizeof(uint32_t);
  static_assert(kTileRows * kResultRow * sizeof(float) <= (2 * kTileKeys + kTileRows) * kRow * sizeof(T));

  T* keys;
  T* values;
  T* queries;
  uint32_t* table;
  float* results;

  __device__ explicit TileMemory(unsigned char* memory) {
    keys = reinterpret_cast<T*>(memory);
    values = keys + kTileKeys * kRow;
    queries = values + kTileKeys * kRow;
    table = reinterpret_cast<uint32_t*>(queries + kTileRows * kRow);
    results = reinterpret_cast<float*>(memory);
  }
};

/// Softmax so far of the lane's two rows, of which it has the columns of an accumulator in each stretch of
/// eight dimensions. Scores are in units of log2.
template <uint32_t kDim>
struct RowState {
  float maxima[kRowsOfLane];
  float sums[kRowsOfLane];  // in a span: of the lane's own keys
  ptx::Accumulator results[kDim / kColumns];

  __device__ __forceinline__ void clear() {
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      maxima[r] = kMinusInfinity;
      sums[r] = 0.0F;
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns; ++i) results[i] = {};
  }
};

/// What a row's results so far and those of one more span are multiplied with to have a common maximum. Of a
/// row that has seen no key in either, with zeros.
struct Merge {
  float max;
  float before;
  float more;
  __device__ __forceinline__ Merge(float max_before, float max_more) {
    max = max_more > max_before ? max_more : max_before;
    const float base = max == kMinusInfinity ? 0.0F : max;
    before = ptx::exp2_approx(max_before - base);
    more = ptx::exp2_approx(max_more - base);
  }
  /// Rounded the same wherever it is compiled.
  __device__ __forceinline__ float of(float value_before, float value_more) const {
    return ptx::fused(value_more, more, ptx::product(value_before, before));
  }
};

__device__ __forceinline__ float quad_max(float value) {
  value = larger(value, shuffle_xor(kWholeWarp, value, 1));
  return larger(value, shuffle_xor(kWholeWarp, value, 2));
}
__device__ __forceinline__ float quad_sum(float value) {
  value += shuffle_xor(kWholeWarp, value, 1);
  return value + shuffle_xor(kWholeWarp, value, 2);
}

/// Of lane l the address of row l % 8 of matrix l / 8, where the matrices 1 and 3 lie 8 rows further down if
/// kDownFirst and the matrices 2 and 3 otherwise; the others lie 8 columns to the right.
template <bool kDownFirst, class T>
__device__ __forceinline__ const T* matrix_row(const T* rows, uint32_t stride) {
  const uint32_t lane = thread_x() % kWarp;
  const uint32_t odd = lane / 8 % 2;
  const uint32_t high = lane / 16;
  return rows + (lane % 8 + 8 * (kDownFirst ? odd : high)) * stride + 8 * (kDownFirst ? high : odd);
}

/// The scores of the warp's rows for the keys of a tile.
template <class T, uint32_t kDim>
__device__ __forceinline__ void score_tile(const TileMemory<T, kDim>& memory,
                                           ptx::Accumulator (&scores)[kTileKeys / kColumns]) {
  constexpr uint32_t kRow = TileMemory<T, kDim>::kRow;
  const T* queries = memory.queries + thread_x() / kWarp * kRowsOfWarp * kRow;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kTileKeys / kColumns; ++i) scores[i] = {};
  QUIRE_UNROLL
  for (uint32_t d = 0; d < kDim; d += kDepth) {
    const ptx::Matrices a = ptx::load_matrices<false>(matrix_row<true>(queries + d, kRow));
    QUIRE_UNROLL
    for (uint32_t key = 0; key < kTileKeys; key += 2 * kColumns) {
      const ptx::Matrices b =
          ptx::load_matrices<false>(matrix_row<false>(memory.keys + key * kRow + d, kRow));
      ptx::multiply_add<T>(scores[key / kColumns], a, b.words[0], b.words[1]);
      ptx::multiply_add<T>(scores[key / kColumns + 1], a, b.words[2], b.words[3]);
    }
  }
}

/// Turns scores into weights and scales what the rows have by the new maxima. A key that a row does not see
/// has weight 0; a tile of such keys changes no bit of the row. `begin`, `end`: the keys that each row sees.
template <uint32_t kDim>
__device__ __forceinline__ void weigh_tile(ptx::Accumulator (&scores)[kTileKeys / kColumns], float scale,
                                           uint32_t tile, const uint32_t* begin, const uint32_t* end,
                                           RowState<kDim>& state) {
  const uint32_t first = tile + thread_x() % 4 * 2;
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    float max = kMinusInfinity;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTileKeys / kColumns * 2; ++i) {
      const uint32_t key = first + i / 2 * kColumns + i % 2;
      float& score = scores[i / 2].at[r * 2 + i % 2];
      score = key >= begin[r] && key < end[r] ? ptx::product(score, scale) : kMinusInfinity;
      max = larger(max, score);
    }
    const float new_max = larger(state.maxima[r], quad_max(max));
    const float base = new_max == kMinusInfinity ? 0.0F : new_max;
    const float rescale = ptx::exp2_approx(state.maxima[r] - base);
    state.maxima[r] = new_max;
    state.sums[r] = ptx::product(state.sums[r], rescale);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kTileKeys / kColumns * 2; ++i) {
      float& weight = scores[i / 2].at[r * 2 + i % 2];
      weight = ptx::exp2_approx(weight - base);
      state.sums[r] += weight;
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns * 2; ++i) state.results[i / 2].at[r * 2 + i % 2] *= rescale;
  }
}

/// Adds the tile's values by their weights: the accumulators of the scores are matrices of the product's left
/// side.
template <class T, uint32_t kDim>
__device__ __forceinline__ void add_values(const TileMemory<T, kDim>& memory,
                                           const ptx::Accumulator (&weights)[kTileKeys / kColumns],
                                           RowState<kDim>& state) {
  constexpr uint32_t kRow = TileMemory<T, kDim>::kRow;
  QUIRE_UNROLL
  for (uint32_t key = 0; key < kTileKeys; key += kDepth) {
    ptx::Matrices a;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < 4; ++i) {
      const ptx::Accumulator& from = weights[key / kColumns + i / 2];
      a.words[i] = pack_pair<T>(from.at[i % 2 * 2], from.at[i % 2 * 2 + 1]);
    }
    QUIRE_UNROLL
    for (uint32_t d = 0; d < kDim; d += 2 * kColumns) {
      const ptx::Matrices b =
          ptx::load_matrices<true>(matrix_row<true>(memory.values + key * kRow + d, kRow));
      ptx::multiply_add<T>(state.results[d / kColumns], a, b.words[0], b.words[1]);
      ptx::multiply_add<T>(state.results[d / kColumns + 1], a, b.words[2], b.words[3]);
    }
  }
}

/// What a block works on.
template <class T, uint32_t kDim>
struct Work {
  QueryTile tile;
  uint32_t group;
  uint32_t rows;
  uint32_t first_span;  // of those that the block goes through
  uint32_t last_span;
  uint32_t seen_from;  // the keys of all rows
  uint32_t seen_to;
  const T* head;  // the K/V head's K in block 0
  const uint32_t* table;
  uint32_t begin[kRowsOfLane];  // the keys of the lane's rows
  uint32_t end[kRowsOfLane];

  __device__ __forceinline__ explicit Work(const PagedAttentionArgs& args) : tile(args.tiles[block_z()]) {
    group = args.num_heads / args.blocks.num_kv_heads;
    rows = tile.num_tokens * group;
    seen_from = first_key(tile.first_position + 1, args.window);
    seen_to = tile.first_position + tile.num_tokens;
    first_span = seen_from / kSpanKeys + (args.shared_spans != 0 ? block_x() : 0);
    last_span = args.shared_spans != 0 ? first_span : (seen_to - 1) / kSpanKeys;
    head = static_cast<const T*>(args.cache) + args.blocks.k_of_head(block_y());
    table = args.block_tables + size_t{tile.sequence} * args.table_stride;
    QUIRE_UNROLL
    for (uint32_t r = 0; r < kRowsOfLane; ++r) {
      const uint32_t row = thread_x() / kWarp * kRowsOfWarp + thread_x() % kWarp / 4 + r * 8;
      end[r] = row < rows ? tile.first_position + row / group + 1 : 0;
      begin[r] = first_key(end[r], args.window);
    }
  }

  /// Of a row of the tile: the row of q and out, and the head.
  __device__ __forceinline__ size_t out_row(uint32_t row) const { return tile.first_row + row / group; }
  __device__ __forceinline__ size_t out_head(uint32_t row) const { return block_y() * group + row % group; }
};

/// The queries of the tile into shared memory; rows that it does not have are zeros.
template <class T, uint32_t kDim>
__device__ __forceinline__ void load_queries(const PagedAttentionArgs& args, const Work<T, kDim>& work,
                                             const TileMemory<T, kDim>& memory) {
  constexpr uint32_t kRowPieces = kDim / kPiece<T>;
  for (uint32_t i = thread_x(); i < kTileRows * kRowPieces; i += kThreads) {
    const uint32_t row = i / kRowPieces;
    const uint32_t d = i % kRowPieces * kPiece<T>;
    ptx::Vec128 piece = {};
    if (row < work.rows) {
      const T* from =
          static_cast<const T*>(args.q) + work.out_row(row) * args.q_stride + work.out_head(row) * kDim + d;
      piece = ptx::load_readonly_128(from);
    }
    ptx::store_shared_128(memory.queries + row * TileMemory<T, kDim>::kRow + d, piece);
  }
}

/// One span, from nothing. All threads reach it together; the block table and the queries may be new.
template <class T, uint32_t kDim>
__device__ __forceinline__ void attend_span(const PagedAttentionArgs& args, const Work<T, kDim>& work,
                                            uint32_t span, const TileMemory<T, kDim>& memory,
                                            RowState<kDim>& state) {
  const uint32_t begin = work.seen_from > span * kSpanKeys ? work.seen_from : span * kSpanKeys;
  const uint32_t end = work.seen_to < (span + 1) * kSpanKeys ? work.seen_to : (span + 1) * kSpanKeys;
  load_table(memory.table, work.table, args.blocks.block_size, begin, end);
  sync_block();
  state.clear();
  KvTile<T, kDim> next;
  uint32_t tile = begin / kTileKeys * kTileKeys;
  next.load(work.head, args.blocks, memory.table, tile, begin, end);
  for (; tile < end; tile += kTileKeys) {
    next.store(memory.keys, memory.values);
    sync_block();
    if (tile + kTileKeys < end) next.load(work.head, args.blocks, memory.table, tile + kTileKeys, begin, end);
    if (thread_x() / kWarp * kRowsOfWarp < work.rows) {
      ptx::Accumulator scores[kTileKeys / kColumns];
      score_tile(memory, scores);
      weigh_tile(scores, args.scale * kLog2E, tile, work.begin, work.end, state);
      add_values(memory, scores, state);
    }
    sync_block();
  }
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) state.sums[r] = quad_sum(state.sums[r]);
}

/// Adds a span to those before it.
template <uint32_t kDim>
__device__ __forceinline__ void merge_span(const RowState<kDim>& span, RowState<kDim>& all) {
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    const Merge merge(all.maxima[r], span.maxima[r]);
    all.maxima[r] = merge.max;
    all.sums[r] = merge.of(all.sums[r], span.sums[r]);
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns * 2; ++i) {
      float& value = all.results[i / 2].at[r * 2 + i % 2];
      value = merge.of(value, span.results[i / 2].at[r * 2 + i % 2]);
    }
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

/// Leaves the rows' results in shared memory: divided by their sums, or as they are with maxima and sums in
/// the partials.
template <class T, uint32_t kDim>
__device__ __forceinline__ void stage_results(const PagedAttentionArgs& args, const Work<T, kDim>& work,
                                              const TileMemory<T, kDim>& memory,
                                              const RowState<kDim>& state) {
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    const uint32_t row = thread_x() / kWarp * kRowsOfWarp + thread_x() % kWarp / 4 + r * 8;
    if (row >= work.rows) continue;
    if (args.shared_spans != 0 && thread_x() % 4 < kScores) {
      const SpanPartials partials(args, work.out_row(row), work.out_head(row));
      partials.scores[block_x() * kScores + thread_x() % 4] =
          thread_x() % 4 == 0 ? state.maxima[r] : state.sums[r];
    }
    const float divisor = args.shared_spans != 0 ? 1.0F : state.sums[r];
    float* to = memory.results + row * TileMemory<T, kDim>::kResultRow + thread_x() % 4 * 2;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / kColumns; ++i) {
      const float* pair = state.results[i].at + r * 2;
      ptx::store_shared_64(to + i * kColumns, pair[0] / divisor, pair[1] / divisor);
    }
  }
}

/// From shared memory to the partials.
template <class T, uint32_t kDim>
__device__ __forceinline__ void store_partials(const PagedAttentionArgs& args, const Work<T, kDim>& work,
                                               const TileMemory<T, kDim>& memory) {
  constexpr uint32_t kRowPieces = kDim / kPiece<float>;
  for (uint32_t i = thread_x(); i < work.rows * kRowPieces; i += kThreads) {
    const uint32_t row = i / kRowPieces;
    const uint32_t d = i % kRowPieces * kPiece<float>;
    const SpanPartials partials(args, work.out_row(row), work.out_head(row));
    ptx::store_128(partials.results + block_x() * kDim + d,
                   ptx::load_shared_128(memory.results + row * TileMemory<T, kDim>::kResultRow + d));
  }
}

/// From shared memory to the output.
template <class T, uint32_t kDim>
__device__ __forceinline__ void store_output(const PagedAttentionArgs& args, const Work<T, kDim>& work,
                                             const TileMemory<T, kDim>& memory) {
  constexpr uint32_t kRowPieces = kDim / kPiece<T>;
  for (uint32_t i = thread_x(); i < work.rows * kRowPieces; i += kThreads) {
    const uint32_t row = i / kRowPieces;
    const uint32_t d = i % kRowPieces * kPiece<T>;
    const float* from = memory.results + row * TileMemory<T, kDim>::kResultRow + d;
    const ptx::Vec128 low = ptx::load_shared_128(from);
    const ptx::Vec128 high = ptx::load_shared_128(from + kPiece<float>);
    Floats<T> values;
    QUIRE_UNROLL
    for (uint32_t j = 0; j < kPiece<T>; ++j) {
      values.at[j] = float_of_bits(j < 4 ? low.words[j] : high.words[j - 4]);
    }
    T* to = static_cast<T*>(args.out) + (work.out_row(row) * args.num_heads + work.out_head(row)) * kDim + d;
    ptx::store_128(to, pack<T>(values));
  }
}

/// One block for each tile (z) and K/V head (y), and for each span (x) if they are shared.
template <class T, uint32_t kDim, bool kShared>
__global__ void __launch_bounds__(kThreads) attend_rows_kernel(PagedAttentionArgs args) {
  const Work<T, kDim> work(args);
  if (work.first_span * kSpanKeys >= work.seen_to) return;
  const TileMemory<T, kDim> memory(shared_memory<unsigned char>());
  load_queries(args, work, memory);
  RowState<kDim> all;
  attend_span(args, work, work.first_span, memory, all);
  if constexpr (!kShared) {
    for (uint32_t span = work.first_span + 1; span <= work.last_span; ++span) {
      RowState<kDim> more;
      attend_span(args, work, span, memory, more);
      merge_span(more, all);
    }
  }
  stage_results(args, work, memory, all);
  sync_block();
  if constexpr (kShared) {
    store_partials(args, work, memory);
  } else {
    store_output(args, work, memory);
  }
}

/// One block for each row of a tile (x), K/V head (y) and tile (z); a thread is a dimension.
template <class T>
__global__ void __launch_bounds__(kThreads) merge_spans_kernel(PagedAttentionArgs args) {
  const QueryTile tile = args.tiles[block_z()];
  const uint32_t group = args.num_heads / args.blocks.num_kv_heads;
  const uint32_t head_dim = args.blocks.head_dim;
  const uint32_t row = block_x();
  if (row >= tile.num_tokens * group || thread_x() >= head_dim) return;
  const uint32_t spans = (tile.first_position + tile.num_tokens - 1) / kSpanKeys -
                         first_key(tile.first_position + 1, args.window) / kSpanKeys + 1;
  const size_t out_row = tile.first_row + row / group;
  const size_t head = block_y() * group + row % group;
  const SpanPartials partials(args, out_row, head);
  float max = partials.scores[0];
  float sum = partials.scores[1];
  float result = partials.results[thread_x()];
  for (uint32_t span = 1; span < spans; ++span) {
    const Merge merge(max, partials.scores[span * kScores]);
    max = merge.max;
    sum = merge.of(sum, partials.scores[span * kScores + 1]);
    result = merge.of(result, partials.results[span * head_dim + thread_x()]);
  }
  T* out = static_cast<T*>(args.out) + (out_row * args.num_heads + head) * head_dim;
  out[thread_x()] = from_float<T>(result / sum);
}

template <class T, uint32_t kDim>
LaunchError attend(const PagedAttentionArgs& args, Stream stream) {
  const bool shared = args.shared_spans != 0;
  const LaunchShape shape{{shared ? args.shared_spans : 1, args.blocks.num_kv_heads, args.num_tiles},
                          kThreads,
                          TileMemory<T, kDim>::kBytes,
                          stream};
  const auto kernel = shared ? attend_rows_kernel<T, kDim, true> : attend_rows_kernel<T, kDim, false>;
  return launch(kDim < 64 ? "paged_attention_small" : "paged_attention", shape, kernel, args);
}

template <class T>
LaunchError attend_and_merge(const PagedAttentionArgs& args, Stream stream) {
  LaunchError error = 0;
  if (args.blocks.head_dim == 16) error = attend<T, 16>(args, stream);
  if (args.blocks.head_dim == 32) error = attend<T, 32>(args, stream);
  if (args.blocks.head_dim == 64) error = attend<T, 64>(args, stream);
  if (args.blocks.head_dim == 80) error = attend<T, 80>(args, stream);
  if (args.blocks.head_dim == 96) error = attend<T, 96>(args, stream);
  if (args.blocks.head_dim == 128) error = attend<T, 128>(args, stream);
  if (error != 0 || args.shared_spans == 0) return error;
  const LaunchShape shape{{kTileRows, args.blocks.num_kv_heads, args.num_tiles}, kThreads, 0, stream};
  return launch("merge_spans", shape, merge_spans_kernel<T>, args);
}

}  // namespace

bool supports_paged_attention(const KvBlocks& blocks, uint32_t num_heads) {
  constexpr uint32_t kDims[] = {16, 32, 64, 80, 96, 128};  // the first two: of small models
  return supports_attention(blocks, num_heads) && blocks.dtype != DType::kF32 &&
         std::find(std::begin(kDims), std::end(kDims), blocks.head_dim) != std::end(kDims);
}

uint32_t tokens_of_tile(const KvBlocks& blocks, uint32_t num_heads) {
  return kTileRows / (num_heads / blocks.num_kv_heads);
}

uint32_t tile_spans(const QueryTile& tile, uint32_t window) {
  return (tile.first_position + tile.num_tokens - 1) / kSpanKeys -
         first_key(tile.first_position + 1, window) / kSpanKeys + 1;
}

size_t paged_attention_scratch(const PagedAttentionArgs& args) {
  return size_t{args.num_rows} * args.num_heads * args.shared_spans * (args.blocks.head_dim + kScores);
}

LaunchError paged_attention(const PagedAttentionArgs& args, Stream stream) {
  return args.blocks.dtype == DType::kF16 ? attend_and_merge<F16>(args, stream)
                                          : attend_and_merge<Bf16>(args, stream);
}

}  // namespace quire::backend::cuda
