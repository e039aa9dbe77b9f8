#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/expert_product.h"
#include "backend/cuda/int4_weights.h"
#include "backend/cuda/int8_product.h"
#include "backend/cuda/lane_integers.h"
#include "backend/cuda/lt_product.h"
#include "backend/cuda/ptx_mma.h"
#include "backend/cuda/row_tile.h"

namespace quire::backend::cuda {
namespace {

/// Of a product of matrices: columns of y, and rows.
constexpr uint32_t kLeftRows = 16;
constexpr uint32_t kRightRows = 8;
constexpr uint32_t kPieceBytes = 16;

/// What a block of threads computes and how: its warps divide the columns of y, and the rows of a tile; a
/// warp has so many times the columns and rows of a product. It goes along k by stages.
template <class Weights_, uint32_t kColumnWarps_, uint32_t kRowWarps_, uint32_t kLeft_, uint32_t kRight_,
          uint32_t kStageK_, uint32_t kStages_>
struct Shape {
  using Weights = Weights_;
  static constexpr uint32_t kColumnWarps = kColumnWarps_;
  static constexpr uint32_t kThreads = kColumnWarps * kRowWarps_ * kWarp;
  static constexpr uint32_t kLeft = kLeft_;
  static constexpr uint32_t kRight = kRight_;
  static constexpr uint32_t kColumns = kColumnWarps * kLeft * kLeftRows;
  static constexpr uint32_t kRows = kRowWarps_ * kRight * kRightRows;
  static constexpr uint32_t kStageK = kStageK_;
  static constexpr uint32_t kStages = kStages_;
  /// Turns of 32 of k that become one. With many results in registers there is no room for more.
  static constexpr uint32_t kPartsAtOnce = kLeft * kRight > 4 ? 1 : Weights::kPiecesK / 32;
  // Of a stage there are weights, the scales of their groups, and x.
  static constexpr uint32_t kWeightRow = kStageK / Weights::kPiecesK * 4 * kPieceBytes;
  static constexpr uint32_t kScaleRow = Weights::kHasGroupScales ? kStageK / kInt4Scaled : 0;
  static constexpr uint32_t kScalesAt = kColumns * kWeightRow;
  static constexpr uint32_t kXAt = kScalesAt + kColumns * kScaleRow;
  static constexpr uint32_t kStageBytes = kXAt + kRows * kStageK * 2;
  static_assert(kStageK % Weights::kPiecesK == 0 && kXAt % kPieceBytes == 0);
};
/// Up to eight rows: as few_rows(), one warp for 16 columns, so that there are many blocks. Rows of one tile
/// and few columns; and many columns or rows.
template <class Weights>
struct Shapes {
  using FewRows = Shape<Weights, 1, 1, 1, 1, 256, 6>;
  using FewColumns = Shape<Weights, 2, 2, 1, 4, 128, 4>;
  using ManyColumns = Shape<Weights, 4, 1, 2, 8, 64, 4>;
};
/// As many bytes of weights of a block on their way; of x there is more room than those of one row take.
template <>
struct Shapes<Int4> {
  using FewRows = Shape<Int4, 1, 1, 1, 1, 256, 12>;
  using FewColumns = Shape<Int4, 2, 2, 1, 4, 128, 4>;
  using ManyColumns = Shape<Int4, 4, 1, 2, 8, 128, 3>;
};
static_assert(Shapes<Int8>::FewRows::kRows == kSmallTile && Shapes<Int8>::ManyColumns::kRows == kLargeTile);
/// Blocks with many columns below which blocks have few: as many as a large device has multiprocessors.
constexpr uint32_t kEnoughBlocks = 128;

/// Stages of weights and x; tools/check_cuda.py reads these numbers in the names of kernels. While a stage is
/// multiplied, the others are on their way, of which only the weights count here.
template <uint32_t kThreads, uint32_t kStages, uint32_t kSharedBytes_, uint32_t kBytesInFlight>
struct BlockRing {
  static constexpr uint32_t kSharedBytes = kSharedBytes_;
};
template <class Of>
using RingFor =
    BlockRing<Of::kThreads, Of::kStages, Of::kStages * Of::kStageBytes, (Of::kStages - 1) * Of::kXAt>;

/// Rows of a stage in shared memory without gaps. Pieces of weights lie such that those of two rows with one
/// l / 4 are in different banks, pieces of x such that those of eight rows are.
template <class Of>
__device__ __forceinline__ uint32_t weights_at(uint32_t row, uint32_t piece) {
  return row * Of::kWeightRow +
         (Of::kWeightRow > 4 * kPieceBytes ? piece ^ row % 2 * 4 : piece) * kPieceBytes;
}
/// The scales of the four groups of a piece.
template <class Of>
__device__ __forceinline__ uint32_t scales_at(uint32_t column, uint32_t stretch) {
  return Of::kScalesAt + column * Of::kScaleRow + stretch * (kInt4Stretch / kInt4Scaled);
}
template <class Of>
__device__ __forceinline__ uint32_t x_at(uint32_t row, uint32_t piece) {
  return row * Of::kStageK * 2 + (piece ^ row % 8) * kPieceBytes;
}

template <class T>
struct Args {
  const T* x;
  const unsigned char* weights;
  const int8_t* group_scales;
  const float* scales;
  const T* bias;
  void* y;
  uint32_t rows;
  uint32_t n;
  uint32_t k;
  uint32_t stride;  // of y
  uint32_t x_choices;
  uint32_t columns;  // of blocks
  RowTiles how;
  const uint32_t* chosen;
  const uint32_t* order;
  const ExpertTile* tiles;
};

/// How the threads of a block copy stages of a matrix whose rows are `bytes` long: each has one piece of
/// every kRowsOfTurn-th row.
template <class Of, uint32_t kRows, uint32_t kRowBytes>
struct Copies {
  static constexpr uint32_t kPieces = kRowBytes / kPieceBytes;
  static_assert(Of::kThreads % kPieces == 0);
  static constexpr uint32_t kRowsOfTurn = Of::kThreads / kPieces;
  static constexpr uint32_t kTurns = kRows / kRowsOfTurn;
  static_assert(kRows % kRowsOfTurn == 0);

  const unsigned char* matrix;
  uint32_t rows[kTurns];  // of it, of which the thread has pieces
  uint32_t next;          // how far those of the next stage lie behind the beginning of their rows
  uint32_t bytes;

  __device__ __forceinline__ Copies(const void* from, uint32_t row_bytes)
      : matrix(static_cast<const unsigned char*>(from)), next(piece() * kPieceBytes), bytes(row_bytes) {}
  __device__ __forceinline__ static uint32_t piece() { return thread_x() % kPieces; }
  __device__ __forceinline__ static uint32_t row(uint32_t turn) {
    return turn * kRowsOfTurn + thread_x() / kPieces;
  }

  /// Behind the end of a row are zeros.
  __device__ __forceinline__ void copy(unsigned char* to, uint32_t turn) const {
    if (next < bytes) {
      copy_async(to, matrix + size_t{rows[turn]} * bytes + next, kPieceBytes);
    } else {
      ptx::store_shared_128(to, {});
    }
  }
};

template <class Of, class T>
class WeightCopies : Copies<Of, Of::kColumns, Of::kWeightRow> {
  using Base = Copies<Of, Of::kColumns, Of::kWeightRow>;
  using Weights = typename Of::Weights;

 public:
  __device__ __forceinline__ WeightCopies(const Args<T>& args, uint32_t expert, uint32_t first_column)
      : Base(args.weights + size_t{expert} * args.n * Weights::row_bytes(args.k),
             Weights::row_bytes(args.k)) {
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < Base::kTurns; ++turn) {
      const uint32_t column = first_column + Base::row(turn);
      this->rows[turn] = column < args.n ? column : args.n - 1;
    }
    if constexpr (Weights::kHasGroupScales) {
      static_assert(Of::kThreads >= Of::kColumns && Of::kColumns % kScaleRows == 0);
      scales_from_ = args.group_scales + expert * int4_scale_bytes(args.n, args.k) +
                     int4_scale_place(scaled_column(args.n, first_column), 0, args.k);
    }
  }
  __device__ __forceinline__ void begin(unsigned char* stage) {
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < Base::kTurns; ++turn) {
      this->copy(stage + weights_at<Of>(Base::row(turn), Base::piece()), turn);
    }
    this->next += Of::kWeightRow;
    if constexpr (Weights::kHasGroupScales) {
      constexpr uint32_t kOfRow =
          kScalesTogether / Of::kScaleRow;  // stages that take scales that lie together
      static_assert(kScalesTogether % Of::kScaleRow == 0);
      if (thread_x() < Of::kColumns) {
        copy_async(
            stage + Of::kScalesAt + thread_x() * Of::kScaleRow,
            scales_from_ + stage_ / kOfRow * kScaleRows * kScalesTogether + stage_ % kOfRow * Of::kScaleRow,
            Of::kScaleRow);
      }
      ++stage_;
    }
  }

 private:
  /// The one whose scales this thread copies.
  __device__ __forceinline__ static uint32_t scaled_column(uint32_t n, uint32_t first_column) {
    const uint32_t column = first_column + thread_x() % Of::kColumns;
    return column < n ? column : n - 1;
  }

  const int8_t* scales_from_ = nullptr;
  uint32_t stage_ = 0;
};

template <class Of, class T>
class XCopies : Copies<Of, Of::kRows, Of::kStageK * 2> {
  using Base = Copies<Of, Of::kRows, Of::kStageK * 2>;

 public:
  __device__ __forceinline__ XCopies(const Args<T>& args, const RowTile& tile)
      : Base(args.x, args.k * 2), count_(tile.count) {
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < Base::kTurns; ++turn) {
      const uint32_t i = Base::row(turn) < count_ ? Base::row(turn) : 0;
      this->rows[turn] = tile.row(i) / args.x_choices;
    }
  }
  /// Only the rows that there are.
  __device__ __forceinline__ void begin(unsigned char* stage) {
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < Base::kTurns; ++turn) {
      if (Base::row(turn) < count_) {
        this->copy(stage + Of::kXAt + x_at<Of>(Base::row(turn), Base::piece()), turn);
      }
    }
    this->next += Of::kStageK * 2;
  }

 private:
  uint32_t count_;
};

/// A warp's part of the block's results, before they are scaled.
template <class Of, class T>
struct WarpSums {
  using Weights = typename Of::Weights;
  ptx::Accumulator at[Of::kLeft][Of::kRight] = {};

  __device__ __forceinline__ static uint32_t first_column() {
    return thread_x() / kWarp % Of::kColumnWarps * Of::kLeft * kLeftRows;
  }
  __device__ __forceinline__ static uint32_t first_row() {
    return thread_x() / kWarp / Of::kColumnWarps * Of::kRight * kRightRows;
  }

  /// Adds the products of a stage. Of rows that the tile does not have, the last that it has is multiplied.
  __device__ __forceinline__ void add(const unsigned char* stage, uint32_t rows) {
    const uint32_t lane = thread_x() % kWarp;
    QUIRE_UNROLL
    for (uint32_t stretch = 0; stretch < Of::kStageK / Weights::kPiecesK; ++stretch) {
      LaneIntegers<Weights, T> columns[Of::kLeft][2];
      QUIRE_UNROLL
      for (uint32_t i = 0; i < Of::kLeft; ++i) {
        QUIRE_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          const uint32_t column = first_column() + i * kLeftRows + half * 8 + lane / 4;
          columns[i][half].load(stage + weights_at<Of>(column, stretch * 4 + lane % 4),
                                stage + scales_at<Of>(column, stretch));
        }
      }
      QUIRE_UNROLL_BY(Of::kPartsAtOnce)
      for (uint32_t part = 0; part < Weights::kPiecesK / 32; ++part) {
        ptx::Matrices left[Of::kLeft][2];
        QUIRE_UNROLL
        for (uint32_t i = 0; i < Of::kLeft; ++i) {
          const LaneElements low = columns[i][0].next();
          const LaneElements high = columns[i][1].next();
          QUIRE_UNROLL
          for (uint32_t p = 0; p < 2; ++p) {
            left[i][p] = {{low.words[p][0], high.words[p][0], low.words[p][1], high.words[p][1]}};
          }
        }
        QUIRE_UNROLL
        for (uint32_t r = 0; r < Of::kRight; ++r) {
          const uint32_t wanted = first_row() + r * kRightRows + lane % 8;
          const uint32_t row = wanted < rows ? wanted : rows - 1;
          const uint32_t piece = stretch * (Weights::kPiecesK / 8) + part * 4 + lane / 8;
          const ptx::Matrices right = ptx::load_matrices<false>(stage + Of::kXAt + x_at<Of>(row, piece));
          QUIRE_UNROLL
          for (uint32_t i = 0; i < Of::kLeft; ++i) {
            ptx::multiply_add<T>(at[i][r], left[i][0], right.words[0], right.words[1]);
            ptx::multiply_add<T>(at[i][r], left[i][1], right.words[2], right.words[3]);
          }
        }
      }
    }
  }
};

/// The block's results, through shared memory that nobody uses any more, so that whole pieces are stored.
template <class Of, class T, class Out>
__device__ __forceinline__ void store(const Args<T>& args, const RowTile& tile, uint32_t first_column,
                                      const WarpSums<Of, T>& sums, Out* memory) {
  using Sums = WarpSums<Of, T>;
  constexpr uint32_t kRow = Of::kColumns + kPiece<Out>;
  static_assert(Of::kRows * kRow * sizeof(Out) <= RingFor<Of>::kSharedBytes);
  const uint32_t lane = thread_x() % kWarp;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < Of::kLeft; ++i) {
    QUIRE_UNROLL
    for (uint32_t half = 0; half < 2; ++half) {
      const uint32_t in_block = Sums::first_column() + i * kLeftRows + half * 8 + lane / 4;
      const uint32_t wanted = first_column + in_block;
      const uint32_t column = wanted < args.n ? wanted : args.n - 1;
      const float scale = args.scales[size_t{tile.expert} * args.n + column];
      const float bias = args.bias == nullptr ? 0.0F : to_float(args.bias[column]);
      QUIRE_UNROLL
      for (uint32_t r = 0; r < Of::kRight; ++r) {
        QUIRE_UNROLL
        for (uint32_t e = 0; e < 2; ++e) {
          const float sum = sums.at[i][r].at[half * 2 + e];
          // Rounded the same wherever it is compiled; without a bias, a sum of -0 stays as it is.
          const float value = args.bias == nullptr ? ptx::product(sum, scale) : ptx::fused(sum, scale, bias);
          memory[(Sums::first_row() + r * kRightRows + lane % 4 * 2 + e) * kRow + in_block] =
              from_float<Out>(value);
        }
      }
    }
  }
  sync_block();
  constexpr uint32_t kRowPieces = Of::kColumns / kPiece<Out>;
  for (uint32_t i = thread_x(); i < tile.count * kRowPieces; i += Of::kThreads) {
    const uint32_t row = i / kRowPieces;
    const uint32_t in_block = i % kRowPieces * kPiece<Out>;
    const uint32_t column = first_column + in_block;
    if (column >= args.n) continue;
    Out* to = static_cast<Out*>(args.y) + size_t{tile.row(row)} * args.stride + column;
    ptx::store_128(to, ptx::load_shared_128(memory + row * kRow + in_block));
  }
}

/// One block for so many columns and each tile. Where its matrix does not depend on what kernels
/// before it have chosen, its weights begin to come before it waits for those, as many as the ring holds.
template <class T, class Out, class Of, class Ring>
__global__ void __launch_bounds__(Of::kThreads) int8_product_kernel(Args<T> args) {
  constexpr uint32_t kAhead = Of::kStages - 1;
  unsigned char* memory = shared_memory<unsigned char>();
  const uint32_t stages = (args.k + Of::kStageK - 1) / Of::kStageK;
  const bool has_experts = args.how != RowTiles::kConsecutive;
  let_next_begin();
  const BlockPlace place(args.columns);
  const uint32_t first_column = place.column * Of::kColumns;
  WeightCopies<Of, T> weights(args, 0, first_column);
  if (!has_experts) {
    QUIRE_KEEP_LOOP
    for (uint32_t stage = 0; stage < kAhead && stage < stages; ++stage)
      weights.begin(memory + stage * Of::kStageBytes);
  }
  wait_for_earlier();
  const RowTile tile(args.how, place.tile, Of::kRows, args.rows, args.chosen, args.order, args.tiles);
  if (tile.count == 0) return;  // only with experts: no copy is on its way
  if (has_experts) weights = WeightCopies<Of, T>(args, tile.expert, first_column);
  XCopies<Of, T> x(args, tile);
  QUIRE_KEEP_LOOP
  for (uint32_t stage = 0; stage < kAhead; ++stage) {
    if (stage < stages) {
      if (has_experts) weights.begin(memory + stage * Of::kStageBytes);
      x.begin(memory + stage * Of::kStageBytes);
    }
    commit_copies();
  }
  WarpSums<Of, T> sums;
  uint32_t now = 0;
  uint32_t free = kAhead;  // multiplied, or never used
  QUIRE_KEEP_LOOP
  for (uint32_t stage = 0; stage < stages; ++stage) {
    wait_for_copies(kAhead - 1);
    sync_block();
    if (stage + kAhead < stages) {
      weights.begin(memory + free * Of::kStageBytes);
      x.begin(memory + free * Of::kStageBytes);
    }
    commit_copies();
    sums.add(memory + now * Of::kStageBytes, tile.count);
    free = now;
    now = now == kAhead ? 0 : now + 1;
  }
  sync_block();
  store<Of, T, Out>(args, tile, first_column, sums, reinterpret_cast<Out*>(memory));
}

template <class Of, class T, class Out>
LaunchError launch_tiles(Args<T> args, uint32_t tiles, Stream stream) {
  using Ring = RingFor<Of>;
  static_assert(Ring::kSharedBytes <= kMostSharedBytes);
  args.columns = (args.n + Of::kColumns - 1) / Of::kColumns;
  const LaunchShape shape{{args.columns * tiles}, Of::kThreads, Ring::kSharedBytes, stream, Begins::kEarly};
  return launch("int8_product", shape, int8_product_kernel<T, Out, Of, Ring>, args);
}

template <class Weights, class T, class Out>
LaunchError launch_for_rows(Args<T> args, uint32_t num_experts, Stream stream) {
  using FewRows = typename Shapes<Weights>::FewRows;
  using FewColumns = typename Shapes<Weights>::FewColumns;
  using ManyColumns = typename Shapes<Weights>::ManyColumns;
  if (args.chosen != nullptr) {
    const uint32_t in_tile = tile_choices(args.rows, num_experts);
    const auto tiles =
        static_cast<uint32_t>(in_tile == 1 ? args.rows : expert_tiles(args.rows, num_experts, in_tile));
    args.how = in_tile == 1 ? RowTiles::kSingle : RowTiles::kGrouped;
    return in_tile == kLargeTile ? launch_tiles<ManyColumns, T, Out>(args, tiles, stream)
                                 : launch_tiles<FewRows, T, Out>(args, tiles, stream);
  }
  args.how = RowTiles::kConsecutive;
  if (args.rows <= FewRows::kRows) return launch_tiles<FewRows, T, Out>(args, 1, stream);
  const uint32_t tiles = (args.rows + kLargeTile - 1) / kLargeTile;
  const uint32_t blocks = tiles * ((args.n + ManyColumns::kColumns - 1) / ManyColumns::kColumns);
  return blocks < kEnoughBlocks ? launch_tiles<FewColumns, T, Out>(args, tiles, stream)
                                : launch_tiles<ManyColumns, T, Out>(args, tiles, stream);
}

template <class Weights, class T>
LaunchError launch_for_result(const Int8ProductArgs& args, Stream stream) {
  const Args<T> typed{.x = static_cast<const T*>(args.x),
                      .weights = static_cast<const unsigned char*>(args.weights),
                      .group_scales = args.group_scales,
                      .scales = args.scales,
                      .bias = static_cast<const T*>(args.bias),
                      .y = args.y,
                      .rows = args.rows,
                      .n = args.n,
                      .k = args.k,
                      .stride = result_stride(args.n, args.out_dtype),
                      .x_choices = args.x_choices,
                      .how = RowTiles::kConsecutive,
                      .chosen = args.chosen,
                      .order = args.order,
                      .tiles = args.tiles};
  return args.out_dtype == DType::kF32 ? launch_for_rows<Weights, T, float>(typed, args.num_experts, stream)
                                       : launch_for_rows<Weights, T, T>(typed, args.num_experts, stream);
}

template <class T>
LaunchError launch_for_weights(const Int8ProductArgs& args, Stream stream) {
  return args.group_scales == nullptr ? launch_for_result<Int8, T>(args, stream)
                                      : launch_for_result<Int4, T>(args, stream);
}

}  // namespace

LaunchError int8_product(const Int8ProductArgs& args, Stream stream) {
  return args.dtype == DType::kF16 ? launch_for_weights<F16>(args, stream)
                                   : launch_for_weights<Bf16>(args, stream);
}

}  // namespace quire::backend::cuda
