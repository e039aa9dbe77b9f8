#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/expert_product.h"
#include "backend/cuda/ptx_mma.h"
#include "backend/cuda/row_tile.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kThreads = 128;
constexpr uint32_t kWarps = kThreads / kWarp;
/// Of a product of matrices: columns of y, and choices.
constexpr uint32_t kLeftRows = 16;
constexpr uint32_t kRightRows = 8;
static_assert(kSmallTile == kRightRows);
constexpr uint32_t kStepK = 32;  // of k, for which fragments are loaded at once

/// What a block multiplies: its columns of y, and how it goes along k.
template <uint32_t kRows>
struct TileShape {
  static constexpr uint32_t kColumns = kRows == kSmallTile ? 64 : 128;
  static constexpr uint32_t kStageK = kRows == kSmallTile ? 128 : 64;
  static constexpr uint32_t kStages = kRows == kSmallTile ? 4 : 3;
  static constexpr uint32_t kStageBytes = (kColumns + kRows) * kStageK * 2;
};

/// Stages of weights and x; tools/check_cuda.py reads these numbers in the names of kernels. While a stage is
/// multiplied, the others are on their way, of which only the weights count here.
template <uint32_t kStages, uint32_t kSharedBytes_, uint32_t kBytesInFlight>
struct Ring {
  static constexpr uint32_t kSharedBytes = kSharedBytes_;
};
template <uint32_t kRows>
using RingFor =
    Ring<TileShape<kRows>::kStages, TileShape<kRows>::kStages * TileShape<kRows>::kStageBytes,
         (TileShape<kRows>::kStages - 1) * TileShape<kRows>::kColumns * TileShape<kRows>::kStageK * 2>;

/// Rows of a stage in shared memory, of weights or of x, without gaps. Piece p of row r lies where piece
/// p ^ (r % 8) would, so that the pieces of eight rows that are loaded at once are in different banks.
template <uint32_t kStageK>
__device__ __forceinline__ uint32_t swizzled(uint32_t row, uint32_t piece) {
  return row * kStageK * 2 + (piece ^ row % 8) * 16;
}

/// How the threads of a block copy stages: each has one piece of every kRowsOfTurn-th row.
template <class T, uint32_t kRows>
class Copies {
  using Shape = TileShape<kRows>;
  static constexpr uint32_t kPieces = Shape::kStageK / kPiece<T>;
  static constexpr uint32_t kRowsOfTurn = kThreads / kPieces;
  static_assert(kRowsOfTurn % 8 == 0);  // a thread's pieces lie below each other
  static constexpr uint32_t kWeightTurns = Shape::kColumns / kRowsOfTurn;
  static constexpr uint32_t kXTurns = kRows / kRowsOfTurn;

 public:
  __device__ __forceinline__ Copies(const ExpertProductArgs& args, const RowTile& tile, uint32_t first_column)
      : weights_(static_cast<const T*>(args.weights) + size_t{tile.expert} * args.n * args.k),
        x_(static_cast<const T*>(args.x)),
        k_(args.k),
        next_(thread_x() % kPieces * kPiece<T>),
        to_(swizzled<Shape::kStageK>(row(), thread_x() % kPieces)) {
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < kWeightTurns; ++turn) {
      const uint32_t column = first_column + turn * kRowsOfTurn + row();
      columns_[turn] = column < args.n ? column : args.n - 1;
    }
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < kXTurns; ++turn) {
      const uint32_t i = turn * kRowsOfTurn + row();
      const uint32_t choice = tile.row(i < tile.count ? i : tile.count - 1);
      rows_[turn] = choice / args.x_choices;
    }
  }

  /// The next stage, to `memory`. Behind the end of k are zeros.
  __device__ __forceinline__ void begin(unsigned char* memory) {
    constexpr uint32_t kTurnBytes = kRowsOfTurn * Shape::kStageK * 2;
    const bool is_there = next_ < k_;
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < kWeightTurns; ++turn) {
      copy(memory + to_ + turn * kTurnBytes, weights_, columns_[turn], is_there);
    }
    memory += Shape::kColumns * Shape::kStageK * 2;
    QUIRE_UNROLL
    for (uint32_t turn = 0; turn < kXTurns; ++turn)
      copy(memory + to_ + turn * kTurnBytes, x_, rows_[turn], is_there);
    next_ += Shape::kStageK;
  }

 private:
  __device__ __forceinline__ static uint32_t row() { return thread_x() / kPieces; }
  __device__ __forceinline__ void copy(unsigned char* to, const T* from, uint32_t row, bool is_there) const {
    if (is_there) {
      copy_async(to, from + size_t{row} * k_ + next_, 16);
    } else {
      ptx::store_shared_128(to, {});
    }
  }

  const T* weights_;
  const T* x_;
  uint32_t k_;
  uint32_t next_;  // of k, the thread's piece
  uint32_t to_;
  uint32_t columns_[kWeightTurns];  // of the weights
  uint32_t rows_[kXTurns];          // of x
};

/// A warp's columns of y for all rows of the tile.
template <class T, uint32_t kRows>
struct WarpSums {
  using Shape = TileShape<kRows>;
  static constexpr uint32_t kColumns = Shape::kColumns / kWarps;
  static constexpr uint32_t kLeft = kColumns / kLeftRows;
  static constexpr uint32_t kRight = kRows / kRightRows;
  ptx::Accumulator at[kLeft][kRight] = {};

  __device__ __forceinline__ static uint32_t first_column() { return thread_x() / kWarp * kColumns; }

  /// Adds the products of a stage. A lane loads row l % 8 of matrix l / 8.
  __device__ __forceinline__ void add(const unsigned char* stage) {
    const unsigned char* x = stage + Shape::kColumns * Shape::kStageK * 2;
    const uint32_t row = thread_x() % 8;
    const uint32_t matrix = thread_x() % kWarp / 8;
    QUIRE_UNROLL
    for (uint32_t step = 0; step < Shape::kStageK / kStepK; ++step) {
      const uint32_t piece = step * (kStepK / kPiece<T>);
      ptx::Matrices left[kLeft][2];
      QUIRE_UNROLL
      for (uint32_t i = 0; i < kLeft; ++i) {
        const uint32_t column = first_column() + i * kLeftRows + matrix % 2 * 8 + row;
        QUIRE_UNROLL
        for (uint32_t half = 0; half < 2; ++half) {
          left[i][half] = ptx::load_matrices<false>(
              stage + swizzled<Shape::kStageK>(column, piece + half * 2 + matrix / 2));
        }
      }
      QUIRE_UNROLL
      for (uint32_t r = 0; r < kRight; ++r) {
        const ptx::Matrices right =
            ptx::load_matrices<false>(x + swizzled<Shape::kStageK>(r * kRightRows + row, piece + matrix));
        QUIRE_UNROLL
        for (uint32_t i = 0; i < kLeft; ++i) {
          ptx::multiply_add<T>(at[i][r], left[i][0], right.words[0], right.words[1]);
          ptx::multiply_add<T>(at[i][r], left[i][1], right.words[2], right.words[3]);
        }
      }
    }
  }
};

/// The block's results, through shared memory that nobody uses any more, so that whole pieces are stored.
template <class T, uint32_t kRows>
__device__ __forceinline__ void store(const ExpertProductArgs& args, const RowTile& tile,
                                      uint32_t first_column, const WarpSums<T, kRows>& sums, T* memory) {
  using Sums = WarpSums<T, kRows>;
  constexpr uint32_t kColumns = TileShape<kRows>::kColumns;
  constexpr uint32_t kRow = kColumns + kPiece<T>;
  static_assert(kRows * kRow * sizeof(T) <= RingFor<kRows>::kSharedBytes);
  const uint32_t lane = thread_x() % kWarp;
  QUIRE_UNROLL
  for (uint32_t i = 0; i < Sums::kLeft; ++i) {
    QUIRE_UNROLL
    for (uint32_t r = 0; r < Sums::kRight; ++r) {
      QUIRE_UNROLL
      for (uint32_t e = 0; e < 4; ++e) {
        const uint32_t column = Sums::first_column() + i * kLeftRows + e / 2 * 8 + lane / 4;
        memory[(r * kRightRows + lane % 4 * 2 + e % 2) * kRow + column] = from_float<T>(sums.at[i][r].at[e]);
      }
    }
  }
  sync_block();
  constexpr uint32_t kRowPieces = kColumns / kPiece<T>;
  for (uint32_t i = thread_x(); i < tile.count * kRowPieces; i += kThreads) {
    const uint32_t row = i / kRowPieces;
    const uint32_t in_block = i % kRowPieces * kPiece<T>;
    const uint32_t column = first_column + in_block;
    if (column >= args.n) continue;
    T* to = static_cast<T*>(args.y) + size_t{tile.row(row)} * args.n + column;
    ptx::store_128(to, ptx::load_shared_128(memory + row * kRow + in_block));
  }
}

/// One block for so many columns and each tile. Its four warps divide the columns.
template <class T, uint32_t kRows, class Ring>
__global__ void __launch_bounds__(kThreads)
    expert_product_kernel(ExpertProductArgs args, RowTiles how, uint32_t columns) {
  using Shape = TileShape<kRows>;
  constexpr uint32_t kAhead = Shape::kStages - 1;
  let_next_begin();
  wait_for_earlier();
  const BlockPlace place(columns);
  const RowTile tile(how, place.tile, kLargeTile, args.choices, args.chosen, args.order, args.tiles);
  if (tile.count == 0) return;
  unsigned char* memory = shared_memory<unsigned char>();
  const uint32_t stages = (args.k + Shape::kStageK - 1) / Shape::kStageK;
  const uint32_t first_column = place.column * Shape::kColumns;
  Copies<T, kRows> copies(args, tile, first_column);
  QUIRE_KEEP_LOOP
  for (uint32_t stage = 0; stage < kAhead; ++stage) {
    if (stage < stages) copies.begin(memory + stage * Shape::kStageBytes);
    commit_copies();
  }
  WarpSums<T, kRows> sums;
  uint32_t now = 0;
  uint32_t free = kAhead;  // multiplied, or never used
  QUIRE_KEEP_LOOP
  for (uint32_t stage = 0; stage < stages; ++stage) {
    wait_for_copies(kAhead - 1);
    sync_block();
    if (stage + kAhead < stages) copies.begin(memory + free * Shape::kStageBytes);
    commit_copies();
    sums.add(memory + now * Shape::kStageBytes);
    free = now;
    now = now == kAhead ? 0 : now + 1;
  }
  sync_block();
  store<T, kRows>(args, tile, first_column, sums, reinterpret_cast<T*>(memory));
}

/// The columns of y that a warp sums, one after the other.
constexpr uint32_t kF32Columns = 4;

/// A column of y for `count` choices of the tile, the first of which is `first`. The warp's lanes divide k.
__device__ __forceinline__ void sum_column(const ExpertProductArgs& args, const RowTile& tile,
                                           uint32_t column, uint32_t first, uint32_t count) {
  const uint32_t lane = thread_x() % kWarp;
  const float* weights =
      static_cast<const float*>(args.weights) + (size_t{tile.expert} * args.n + column) * args.k;
  float sums[kSmallTile] = {};
  for (uint32_t j = lane * kPiece<float>; j < args.k; j += kWarp * kPiece<float>) {
    const Floats<float> w = unpack<float>(ptx::load_readonly_128(weights + j));
    QUIRE_UNROLL
    for (uint32_t i = 0; i < kSmallTile; ++i) {
      if (i >= count) break;
      const size_t row = tile.row(first + i) / args.x_choices;
      const auto* x = static_cast<const float*>(args.x) + row * args.k + j;
      const Floats<float> values = unpack<float>(ptx::load_readonly_128(x));
      QUIRE_UNROLL
      for (uint32_t e = 0; e < kPiece<float>; ++e) sums[i] += w.at[e] * values.at[e];
    }
  }
  QUIRE_UNROLL
  for (uint32_t i = 0; i < kSmallTile; ++i) {
    if (i >= count) break;
    const float sum = warp_sum(sums[i]);
    if (lane == 0) static_cast<float*>(args.y)[size_t{tile.row(first + i)} * args.n + column] = sum;
  }
}

/// The same as expert_product_kernel without tensor cores.
__global__ void __launch_bounds__(kThreads)
    expert_product_f32_kernel(ExpertProductArgs args, RowTiles how, uint32_t columns) {
  let_next_begin();
  wait_for_earlier();
  const BlockPlace place(columns);
  const RowTile tile(how, place.tile, kLargeTile, args.choices, args.chosen, args.order, args.tiles);
  const uint32_t begin = (place.column * kWarps + thread_x() / kWarp) * kF32Columns;
  const uint32_t end = begin + kF32Columns < args.n ? begin + kF32Columns : args.n;
  for (uint32_t column = begin; column < end; ++column) {
    for (uint32_t first = 0; first < tile.count; first += kSmallTile) {
      sum_column(args, tile, column, first,
                 tile.count - first < kSmallTile ? tile.count - first : kSmallTile);
    }
  }
}

template <class T, uint32_t kRows>
LaunchError launch_tiles(const ExpertProductArgs& args, uint32_t tiles, RowTiles how, Stream stream) {
  using Ring = RingFor<kRows>;
  static_assert(Ring::kSharedBytes <= kMostSharedBytes);
  const uint32_t columns = (args.n + TileShape<kRows>::kColumns - 1) / TileShape<kRows>::kColumns;
  const LaunchShape shape{{columns * tiles}, kThreads, Ring::kSharedBytes, stream, Begins::kEarly};
  return launch("expert_product", shape, expert_product_kernel<T, kRows, Ring>, args, how, columns);
}

template <class T>
LaunchError launch_for_tile(const ExpertProductArgs& args, uint32_t in_tile, uint32_t tiles, RowTiles how,
                            Stream stream) {
  if (in_tile == kLargeTile) return launch_tiles<T, kLargeTile>(args, tiles, RowTiles::kGrouped, stream);
  return launch_tiles<T, kSmallTile>(args, tiles, how, stream);
}

}  // namespace

LaunchError expert_product(const ExpertProductArgs& args, Stream stream) {
  const uint32_t in_tile = tile_choices(args.choices, args.num_experts);
  const auto tiles = static_cast<uint32_t>(
      in_tile == 1 ? args.choices : expert_tiles(args.choices, args.num_experts, in_tile));
  const RowTiles how = in_tile > 1 ? RowTiles::kGrouped : RowTiles::kSingle;
  if (args.dtype == DType::kF32) {
    constexpr uint32_t kColumns = kWarps * kF32Columns;
    const uint32_t columns = (args.n + kColumns - 1) / kColumns;
    const LaunchShape shape{{columns * tiles}, kThreads, 0, stream, Begins::kEarly};
    return launch("expert_product_f32", shape, expert_product_f32_kernel, args, how, columns);
  }
  return args.dtype == DType::kF16 ? launch_for_tile<F16>(args, in_tile, tiles, how, stream)
                                   : launch_for_tile<Bf16>(args, in_tile, tiles, how, stream);
}

}  // namespace quire::backend::cuda
