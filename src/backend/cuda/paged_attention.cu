#include <algorithm>
#include <iterator>
#include <type_traits>

#include "backend/cuda/attention_tile.h"
#include "backend/cuda/attention_work.h"
#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/few_queries.h"
#include "backend/cuda/kv_stream.h"
#include "backend/cuda/kv_tile.h"
#include "backend/cuda/paged_attention.h"

namespace quire::backend::cuda {
namespace {

/// The rows of a tile: tokens by heads of the group.
constexpr uint32_t kSmallRows = 64;
constexpr uint32_t kLargeRows = 128;
/// The longest heads whose results one warp has registers for. Two share a stack of longer ones: both score
/// all keys, each adds half of the values. There are no large tiles of these.
constexpr uint32_t kMostOwnDim = 128;

/// How many tiles of K and V are on their way to small tiles, which compute with one in less time than it
/// takes to come. kDeep is for multiprocessors with 228 KiB of shared memory, which four blocks share.
enum class Depth : uint8_t { kShallow, kDeep };
constexpr uint32_t kDeepMultiprocessorBytes = 228 << 10;
constexpr uint32_t kDeepBytes = kDeepMultiprocessorBytes / 4 - (1 << 10);

template <class T, uint32_t kDim, uint32_t kRows, Depth depth>
constexpr uint32_t stages() {
  constexpr uint32_t kShallowStages = kDim <= 96 ? 3 : 2;
  static_assert(kDim > kMostOwnDim || kShallowStages * kBytesOfStage<T, kDim> <= kUnaskedSharedBytes);
  if (kDim > kMostOwnDim) return kShallowStages;
  // Heads below 64 are those of small models.
  if (depth == Depth::kShallow || kRows == kLargeRows || kDim < 64) return kShallowStages;
  return kDeepBytes / kBytesOfStage<T, kDim>;
}

/// How a kernel is launched, how many stacks of 16 rows a warp has, how many warps share them, and how many
/// stages its stream has. tools/check_cuda.py reads these numbers in the names of kernels.
template <uint32_t kThreads_, uint32_t kStacks_, uint32_t kSharers_, uint32_t kStages_,
          uint32_t kSharedBytes_, uint32_t kBytesInFlight_>
struct ThreadBlock {
  static constexpr uint32_t kThreads = kThreads_;
  static constexpr uint32_t kStacks = kStacks_;
  static constexpr uint32_t kSharers = kSharers_;
  static constexpr uint32_t kStages = kStages_;
  static constexpr uint32_t kSharedBytes = kSharedBytes_;
  static constexpr uint32_t kRowsOfWarp = kStacks * kStackRows;
  static constexpr uint32_t kRows = kThreads / kWarp / kSharers * kRowsOfWarp;
};

template <uint32_t kDim, uint32_t kStacks, uint32_t kThreads>
using SpansOf = std::conditional_t<(kStacks > 1), SpansInSharedMemory<kDim, kStacks, kThreads>,
                                   SpansInRegisters<kDim, kStacks>>;

/// As many rows of a warp as registers hold results of. Two stacks leave them no room for those of the spans
/// before: in shared memory, these let a multiprocessor of 228 KiB hold three blocks, one of 164 KiB as many
/// as without, two, and one of 100 KiB one.
template <class T, uint32_t kDim, uint32_t kRows, Depth depth>
struct ThreadBlockFor {
  static constexpr uint32_t kStacks = kRows == kLargeRows && kDim <= 64 ? 2 : 1;
  static constexpr uint32_t kSharers = kDim > kMostOwnDim ? 2 : 1;
  static constexpr uint32_t kThreads = kRows / (kStacks * kStackRows) * kWarp * kSharers;
  using Stream = KvStream<T, kDim, kThreads, stages<T, kDim, kRows, depth>()>;
  using Spans = SpansOf<kDim / kSharers, kStacks, kThreads>;
  static constexpr uint32_t kQueryBytes = kRows * kMemoryRow<T, kDim> * sizeof(T);
  using Type =
      ThreadBlock<kThreads, kStacks, kSharers, stages<T, kDim, kRows, depth>(),
                  Stream::kBytes + Spans::kBytes + (kSharers > 1 ? kQueryBytes : 0), Stream::kBytesInFlight>;
  /// Queries, if registers have them, and results lie where tiles of K and V do before and after.
  static_assert(kQueryBytes <= Stream::kBytes);
};

/// For how many blocks of a kernel a multiprocessor shall have registers.
template <uint32_t kDim, bool kShared, class Shape>
constexpr uint32_t least_blocks() {
  if (Shape::kSharers > 1) return kShared ? fitting_blocks(Shape::kSharedBytes) : 1;
  if (Shape::kStacks > 1)
    return fitting_blocks(Shape::kSharedBytes) < 3 ? fitting_blocks(Shape::kSharedBytes) : 3;
  if (Shape::kRows == kLargeRows) return 1;
  if (kShared) return kDim <= 80 ? 4 : 3;
  return kDim <= 64 ? 4 : 2;
}

/// The span's results of a stack to the partials. Four lanes store a sector together.
template <uint32_t kDim, class Shape>
__device__ __forceinline__ void store_partials(const PagedAttentionArgs& args, const Work<Shape>& work,
                                               uint32_t stack,
                                               const RowState<kDim / Shape::kSharers>& state) {
  const uint32_t first = Work<Shape>::template first_dimension_of_warp<kDim>();
  const uint32_t column = first + thread_x() % 4 * 2;
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    const float sum = quad_sum(state.sums[r]);
    const uint32_t row = work.row_of_lane(stack, r);
    if (row >= work.rows) continue;
    const SpanPartials partials(args, work.out_row(row), work.out_head(row));
    if (first == 0 && thread_x() % 4 < kScores) {
      partials.scores[block_x() * kScores + thread_x() % 4] = thread_x() % 4 == 0 ? state.maxima[r] : sum;
    }
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / Shape::kSharers / kColumns; ++i) {
      const float* pair = state.results[i].at + r * 2;
      ptx::store_64(partials.results + block_x() * kDim + i * kColumns + column, pair[0], pair[1]);
    }
  }
}

/// A stack's results, divided by their sums, to shared memory.
template <class T, uint32_t kDim, class Shape>
__device__ __forceinline__ void stage_results(const Work<Shape>& work, uint32_t stack,
                                              const RowState<kDim / Shape::kSharers>& state, T* memory) {
  const uint32_t column = Work<Shape>::template first_dimension_of_warp<kDim>() + thread_x() % 4 * 2;
  QUIRE_UNROLL
  for (uint32_t r = 0; r < kRowsOfLane; ++r) {
    T* to = memory + work.row_of_lane(stack, r) * kMemoryRow<T, kDim> + column;
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kDim / Shape::kSharers / kColumns; ++i) {
      const float* pair = state.results[i].at + r * 2;
      *reinterpret_cast<uint32_t*>(to + i * kColumns) =
          pack_pair<T>(pair[0] / state.sums[r], pair[1] / state.sums[r]);
    }
  }
}

/// The warp's results from shared memory to the output.
template <class T, uint32_t kDim, class Shape>
__device__ __forceinline__ void store_output(const PagedAttentionArgs& args, const Work<Shape>& work,
                                             const T* memory) {
  constexpr uint32_t kRowPieces = kDim / Shape::kSharers / kPiece<T>;
  for (uint32_t i = thread_x() % kWarp; i < Shape::kRowsOfWarp * kRowPieces; i += kWarp) {
    const uint32_t row = work.first_row_of_warp() + i / kRowPieces;
    const uint32_t d = Work<Shape>::template first_dimension_of_warp<kDim>() + i % kRowPieces * kPiece<T>;
    if (row >= work.rows) break;
    T* to = static_cast<T*>(args.out) + (work.out_row(row) * args.num_heads + work.out_head(row)) * kDim + d;
    ptx::store_128(to, ptx::load_shared_128(memory + row * kMemoryRow<T, kDim> + d));
  }
}

/// One block for each tile (z) and K/V head (y), and for each span (x) if they are shared.
template <class T, uint32_t kDim, bool kShared, class Shape>
__global__ void __launch_bounds__(Shape::kThreads, least_blocks<kDim, kShared, Shape>())
    attend_rows_kernel(PagedAttentionArgs args) {
  let_next_begin();
  wait_for_earlier();
  using Stream = KvStream<T, kDim, Shape::kThreads, Shape::kStages>;
  constexpr uint32_t kStacks = Shape::kStacks;
  constexpr uint32_t kRow = kMemoryRow<T, kDim>;
  const Work<Shape> work(args);
  if (work.keys_from >= work.keys_to) return;
  T* memory = shared_memory<T>();
  const T* head = static_cast<const T*>(args.cache) + args.blocks.k_of_head(block_y());
  const uint32_t* table = args.block_tables + size_t{work.tile.sequence} * args.table_stride;
  using Few = FewQueries<T, kDim, Shape>;
  if constexpr (Few::kAreThere) {
    if (work.rows <= kStackRows) {
      typename Few::Stream kv(head, args.blocks, table, work.keys_from, work.keys_to);
      attend_few<T, kDim, kShared>(args, work, kv, memory);
      return;
    }
  }
  Stream kv(head, args.blocks, table, work.keys_from, work.keys_to);
  // Queries lie where the first tiles do not come, if there is room, while these are on their way. (With two
  // stacks it would take registers that there are not.) Those that stay in memory lie behind all stages.
  constexpr bool kStay = Shape::kSharers > 1;
  constexpr uint32_t kFrom = kStay ? Stream::kBytes / sizeof(T) : Stream::kFreeFrom;
  constexpr bool kHasRoom = kStacks == 1 && (kFrom + Shape::kRows * kRow) * sizeof(T) <= Shape::kSharedBytes;
  T* rows = memory + (kHasRoom ? kFrom : 0);
  if constexpr (kHasRoom) kv.start(memory);
  load_queries<T, kDim, Shape::kRows>(args, work, rows);
  sync_block();
  std::conditional_t<kStay, QueriesInMemory<T, kDim>, Queries<kDim, kStacks>> queries;
  queries.load(rows + work.first_row_of_warp() * kRow);
  if constexpr (!kHasRoom) {
    sync_block();
    kv.start(memory);
  }

  const bool has_rows = work.first_row_of_warp() < work.rows;
  constexpr uint32_t kOwnDim = kDim / Shape::kSharers;
  RowState<kOwnDim> span[kStacks];
  QUIRE_UNROLL
  for (uint32_t s = 0; s < kStacks; ++s) span[s].clear();
  SpansOf<kOwnDim, kStacks, Shape::kThreads> spans(memory + Stream::kBytes / sizeof(T));
  // Where the lane's part of a tile begins; two stacks leave no registers to keep it in.
  const auto keep = [](uint32_t at) { return kStacks == 1 ? kept(at) : at; };
  const uint32_t key_row = keep(matrix_row<false>(kRow));
  const uint32_t value_row =
      keep(matrix_row<true>(kRow) + Work<Shape>::template first_dimension_of_warp<kDim>());
  while (kv.tile() < work.keys_to) {
    const uint32_t tile = kv.tile();
    const T* keys = kv.next();
    if (!has_rows) continue;
    const bool is_whole = tile >= work.whole_from && tile + kTileKeys <= work.whole_to;
    Scores scores[kStacks];
    score_tile<kDim>(keys, key_row, queries, scores);
    QUIRE_UNROLL
    for (uint32_t s = 0; s < kStacks; ++s) {
      if (args.soft_cap != 0.0F) cap_scores(cap_of_products(args), scores[s].at);
      if (!is_whole)
        mask_tile(scores[s], tile, work.seen_from(args, work.first_row_of_warp() + s * kStackRows));
      weigh_tile(scores[s], args.scale * kLog2E, span[s]);
    }
    add_values<kRow>(keys + Stream::kTile, value_row, scores, span);
    if constexpr (!kShared) {
      const uint32_t then = tile + kTileKeys;
      if (then % kSpanKeys != 0 && then < work.keys_to) continue;
      QUIRE_UNROLL
      for (uint32_t s = 0; s < kStacks; ++s) spans.add(s, span[s], then <= work.first_span_end());
    }
  }
  if constexpr (!kShared) sync_block();  // the last tile is read
  if (!has_rows) return;
  QUIRE_UNROLL
  for (uint32_t s = 0; s < kStacks; ++s) {
    if constexpr (kShared) {
      store_partials<kDim>(args, work, s, span[s]);
    } else {
      stage_results<T, kDim>(work, s, spans.of(s), memory);
    }
  }
  if constexpr (!kShared) {
    sync_warp(kWholeWarp);
    store_output<T, kDim>(args, work, memory);
  }
}

/// One block for each row that a tile can have (x), K/V head (y) and tile (z); a thread has each kThreads-th
/// dimension.
template <class T>
__global__ void __launch_bounds__(kThreads) merge_spans_kernel(PagedAttentionArgs args) {
  let_next_begin();
  wait_for_earlier();
  const QueryTile tile = args.tiles[block_z()];
  const uint32_t group = args.num_heads / args.blocks.num_kv_heads;
  const uint32_t head_dim = args.blocks.head_dim;
  const uint32_t row = block_x();
  if (row >= tile.num_tokens * group) return;
  const uint32_t spans = (tile.first_position + tile.num_tokens - 1) / kSpanKeys -
                         first_key(tile.first_position + 1, args.window) / kSpanKeys + 1;
  const size_t out_row = tile.first_row + row / group;
  const size_t head = block_y() * group + row % group;
  const SpanPartials partials(args, out_row, head);
  for (uint32_t d = thread_x(); d < head_dim; d += kThreads) {
    float max = kMinusInfinity;
    float sum = 0.0F;
    float result = 0.0F;
    for (uint32_t span = 0; span < spans; ++span) {
      const Merge merge(max, partials.scores[span * kScores]);
      max = merge.max;
      sum = merge.of(sum, partials.scores[span * kScores + 1]);
      result = merge.of(result, partials.results[span * head_dim + d]);
    }
    T* out = static_cast<T*>(args.out) + (out_row * args.num_heads + head) * head_dim;
    out[d] = from_float<T>(result / sum);
  }
}

template <class T, uint32_t kDim, bool kShared, uint32_t kRows, Depth depth>
LaunchError attend_at(const PagedAttentionArgs& args, Stream stream) {
  using Shape = typename ThreadBlockFor<T, kDim, kRows, depth>::Type;
  static_assert(Shape::kSharedBytes <= kMostSharedBytes);
  const LaunchShape shape{{kShared ? args.shared_spans : 1, args.blocks.num_kv_heads, args.num_tiles},
                          Shape::kThreads,
                          Shape::kSharedBytes,
                          stream,
                          Begins::kEarly};
  return launch(kDim < 64 ? "paged_attention_small" : "paged_attention", shape,
                attend_rows_kernel<T, kDim, kShared, Shape>, args);
}

template <class T, uint32_t kDim, bool kShared, uint32_t kRows>
LaunchError attend(const PagedAttentionArgs& args, Stream stream) {
  return multiprocessor_shared_bytes() >= kDeepMultiprocessorBytes
             ? attend_at<T, kDim, kShared, kRows, Depth::kDeep>(args, stream)
             : attend_at<T, kDim, kShared, kRows, Depth::kShallow>(args, stream);
}

/// All of the tiles with one kernel.
template <class T, bool kShared, uint32_t kRows>
LaunchError attend_tiles(const PagedAttentionArgs& args, Stream stream) {
  if (args.num_tiles == 0) return 0;
  switch (args.blocks.head_dim) {
    case 16:
      return attend<T, 16, kShared, kRows>(args, stream);
    case 32:
      return attend<T, 32, kShared, kRows>(args, stream);
    case 64:
      return attend<T, 64, kShared, kRows>(args, stream);
    case 80:
      return attend<T, 80, kShared, kRows>(args, stream);
    case 96:
      return attend<T, 96, kShared, kRows>(args, stream);
    case 128:
      return attend<T, 128, kShared, kRows>(args, stream);
    default:
      return attend<T, 256, kShared, kSmallRows>(args, stream);
  }
}

template <class T>
LaunchError attend_and_merge(const PagedAttentionArgs& args, Stream stream) {
  PagedAttentionArgs large = args;
  large.num_tiles = args.num_large_tiles;
  large.shared_spans = 0;
  PagedAttentionArgs small = args;
  small.tiles = args.tiles + args.num_large_tiles;
  small.num_tiles = args.num_tiles - args.num_large_tiles;
  LaunchError error = attend_tiles<T, false, kLargeRows>(large, stream);
  if (error != 0) return error;
  if (args.shared_spans == 0) return attend_tiles<T, false, kSmallRows>(small, stream);
  error = attend_tiles<T, true, kSmallRows>(small, stream);
  if (error != 0 || small.num_tiles == 0) return error;
  const uint32_t rows = args.most_shared_tokens * (args.num_heads / args.blocks.num_kv_heads);
  const LaunchShape shape{{rows, args.blocks.num_kv_heads, small.num_tiles},
                          threads_for(args.blocks.head_dim, kThreads),
                          0,
                          stream,
                          Begins::kEarly};
  return launch("merge_spans", shape, merge_spans_kernel<T>, small);
}

}  // namespace

bool supports_paged_attention(const KvBlocks& blocks, uint32_t num_heads) {
  constexpr uint32_t kDims[] = {16, 32, 64, 80, 96, 128, 256};  // the first two: of small models
  return supports_attention(blocks, num_heads) && blocks.dtype != DType::kF32 &&
         std::find(std::begin(kDims), std::end(kDims), blocks.head_dim) != std::end(kDims);
}

uint32_t tokens_of_tile(const KvBlocks& blocks, uint32_t num_heads, TileSize size) {
  const bool is_large = size == TileSize::kLarge && blocks.head_dim <= kMostOwnDim;
  return (is_large ? kLargeRows : kSmallRows) / (num_heads / blocks.num_kv_heads);
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
