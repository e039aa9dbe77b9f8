#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/x86/unroll.h"

// Matmul with panels of ggml's quantization blocks (BlockLayout). A group's products are summed in integers;
// the groups are added in f32 in the order of K, each by one rounded multiply-add. So a result depends
// neither on the tile nor on the stretch of K that is expanded at a time.
//
// A `Dot` says how integers are multiplied:
//   Vec, Int            f32 and i32 lanes of one count
//   kPrefetch           how far ahead blocks are fetched, in bytes
//   kMaxRows            of a tile
//   vectors(rows)       that a tile of so many rows is wide; kPanelWidth is a multiple of it
//   start, add, finish  a group's sums, for a zero point: begun, two steps of four inputs added, as i32.
//                       What the row has for the group must be added at the begin or at the end
//   low_nibbles, high_nibbles   of all bytes
//   F16, I8             as vec_avx2.h has them
namespace quire::kernels::cpu {

/// The integers of two steps, for one Int of outputs.
template <class Int>
struct StepPair {
  Int first;
  Int second;
};

/// The quantization blocks of a panel as stored.
template <WeightFormat kFormat, class Dot>
struct StoredBlocks {
  using Vec = typename Dot::Vec;
  using Int = typename Dot::Int;
  static constexpr BlockLayout kLayout = block_layout(kFormat);
  static constexpr size_t kPerHeader = kLayout.inputs / kBlockInputs;

  const std::byte* header;
  const std::byte* block;

  /// The `index`-th 32 inputs after a header.
  inline __attribute__((always_inline)) StoredBlocks(const std::byte* from, size_t index)
      : header(from + index / kPerHeader * kLayout.bytes()),
        block(header + kLayout.header_bytes + index % kPerHeader * kLayout.block_bytes()) {}

  /// Into L2 (kCache 2) or L1 (3).
  template <int kCache = kLayout.nibbles ? 3 : 2>  // nibbles are read too soon to wait for L2
  inline __attribute__((always_inline)) void prefetch() const {
    for (size_t line = 0; line < kLayout.block_bytes() + 64; line += 64) {
      __builtin_prefetch(reinterpret_cast<const char*>(block) + Dot::kPrefetch + line, 0, kCache);
    }
  }
  inline __attribute__((always_inline)) StepPair<Int> steps(size_t pair, size_t lane) const {
    const std::byte* integers = block + kLayout.scale_bytes + lane * 4;
    constexpr size_t kStep = kPanelWidth * 4;
    if constexpr (kLayout.nibbles) {
      const Int both = Int::load(reinterpret_cast<const float*>(integers + pair * kStep));
      return {Dot::low_nibbles(both), Dot::high_nibbles(both)};
    } else {
      return {Int::load(reinterpret_cast<const float*>(integers + 2 * pair * kStep)),
              Int::load(reinterpret_cast<const float*>(integers + (2 * pair + 1) * kStep))};
    }
  }
  inline __attribute__((always_inline)) Vec scale(size_t group, size_t lane) const {
    return times_factor(half(0, lane), group, lane);
  }
  inline __attribute__((always_inline)) Vec minimum(size_t lane) const {
    return times_factor(half(1, lane), 1, lane);
  }

 private:
  inline __attribute__((always_inline)) Vec half(size_t kind, size_t lane) const {
    return Dot::F16::load(reinterpret_cast<const uint16_t*>(header) + kind * kPanelWidth + lane);
  }
  inline __attribute__((always_inline)) Vec times_factor(Vec value, size_t kind, size_t lane) const {
    if constexpr (kLayout.scale_bytes == 0) return value;
    const auto* factors = reinterpret_cast<const int8_t*>(block) + kind * kPanelWidth + lane;
    return Vec::mul(value, Dot::I8::load(factors));
  }
};

/// The same, expanded, for many rows: for 32 inputs [8][32 outputs][4] bytes, then the scales and the minima
/// of the groups, [32] f32 each.
template <WeightFormat kFormat, class Dot>
struct ExpandedBlocks {
  using Vec = typename Dot::Vec;
  using Int = typename Dot::Int;
  static constexpr BlockLayout kLayout = block_layout(kFormat);
  static constexpr size_t kGroups = kBlockInputs / kLayout.group;
  static constexpr size_t kInteger = kPanelWidth * kBlockInputs;

  const std::byte* block;

  inline __attribute__((always_inline)) ExpandedBlocks(const std::byte* from, size_t index)
      : block(from + index * kExpandedBytes) {}

  inline __attribute__((always_inline)) void prefetch() const {}
  inline __attribute__((always_inline)) StepPair<Int> steps(size_t pair, size_t lane) const {
    const auto* integers = reinterpret_cast<const float*>(block) + 2 * pair * kPanelWidth + lane;
    return {Int::load(integers), Int::load(integers + kPanelWidth)};
  }
  inline __attribute__((always_inline)) Vec scale(size_t group, size_t lane) const {
    return Vec::load(reinterpret_cast<const float*>(block + kInteger) + group * kPanelWidth + lane);
  }
  inline __attribute__((always_inline)) Vec minimum(size_t lane) const { return scale(kGroups, lane); }

  /// Fills `to` with `count` times 32 inputs.
  static void expand(const std::byte* from, size_t count, std::byte* to) {
    constexpr size_t kLanes = Vec::kLanes;
    for (size_t index = 0; index < count; ++index, to += kExpandedBytes) {
      const StoredBlocks<kFormat, Dot> stored(from, index);
      stored.template prefetch<2>();
      auto* integers = reinterpret_cast<float*>(to);
      auto* scales = reinterpret_cast<float*>(to + kInteger);
      QUIRE_UNROLL
      for (size_t lane = 0; lane < kPanelWidth; lane += kLanes) {
        QUIRE_UNROLL
        for (size_t pair = 0; pair < 4; ++pair) {
          const StepPair<Int> steps = stored.steps(pair, lane);
          Int::store(integers + 2 * pair * kPanelWidth + lane, steps.first);
          Int::store(integers + (2 * pair + 1) * kPanelWidth + lane, steps.second);
        }
        for (size_t group = 0; group < kGroups; ++group) {
          Vec::store(scales + group * kPanelWidth + lane, stored.scale(group, lane));
        }
        if constexpr (kLayout.zero == 0) {
          Vec::store(scales + kGroups * kPanelWidth + lane, stored.minimum(lane));
        }
      }
    }
  }
};

/// A stretch of K of one tile.
template <class Dot>
struct BlockTileArgs {
  const std::byte* w;   // in the form of the tile's `Blocks`
  const uint8_t* x;     // of the tile's first row, at the stretch's first input
  const uint8_t* sums;  // the sums of RowForm::kInt8Sums
  size_t ldx;           // bytes
  size_t count;         // of kBlockInputs inputs
  float* to;            // [rows][kPanelWidth]: the sums so far
  bool resume;          // otherwise they begin at zero
};

/// The products of one group, added to the tile's results.
template <class Dot, class Blocks, size_t kGroup, size_t kRows, size_t kVectors>
inline __attribute__((always_inline)) void add_group(const BlockTileArgs<Dot>& args, const Blocks& blocks,
                                                     size_t first_lane, const uint8_t* x, const uint8_t* sums,
                                                     typename Dot::Vec (&results)[kRows][kVectors]) {
  using Vec = typename Dot::Vec;
  using Int = typename Dot::Int;
  constexpr int kZero = Blocks::kLayout.zero;
  constexpr size_t kPairs = Blocks::kLayout.group / 8;

  Int dots[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) dots[i][j] = Dot::template start<kZero>(sums + i * args.ldx);
  }
  QUIRE_UNROLL
  for (size_t pair = kGroup * kPairs; pair < (kGroup + 1) * kPairs; ++pair) {
    StepPair<Int> weights[kVectors];
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) weights[j] = blocks.steps(pair, first_lane + j * Vec::kLanes);
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const uint8_t* row = x + i * args.ldx + pair * 8;
      const StepPair<Int> factors = {Int::set4(row), Int::set4(row + 4)};
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) dots[i][j] = Dot::add(dots[i][j], weights[j], factors);
    }
  }
  QUIRE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) {
    const size_t lane = first_lane + j * Vec::kLanes;
    const Vec scale = blocks.scale(kGroup, lane);
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const uint8_t* sum = sums + i * args.ldx;
      const Int dot = Dot::template finish<kZero>(dots[i][j], sum);
      results[i][j] = Vec::fma(Int::to_float(dot), scale, results[i][j]);
      if constexpr (kZero == 0) {
        results[i][j] = Vec::fnma(blocks.minimum(lane), Int::to_float(Int::set4(sum)), results[i][j]);
      }
    }
  }
}

/// kRows rows x Dot::vectors(kRows) vectors of outputs.
template <class Dot, class Blocks, size_t kRows>
void block_tile(const BlockTileArgs<Dot>& args, size_t first_lane) {
  using Vec = typename Dot::Vec;
  constexpr size_t kVectors = Dot::vectors(kRows);
  constexpr bool kTwoGroups = Blocks::kLayout.group < kBlockInputs;

  Vec results[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      const float* from = args.to + i * kPanelWidth + first_lane + j * Vec::kLanes;
      results[i][j] = args.resume ? Vec::load(from) : Vec::zero();
    }
  }
  const uint8_t* x = args.x;
  const uint8_t* sums = args.sums;
  for (size_t index = 0; index < args.count; ++index, x += kBlockInputs, sums += sizeof(int32_t)) {
    const Blocks blocks(args.w, index);
    if (first_lane == 0) blocks.prefetch();
    add_group<Dot, Blocks, 0>(args, blocks, first_lane, x, sums, results);
    if constexpr (kTwoGroups) {
      sums += sizeof(int32_t);
      add_group<Dot, Blocks, 1>(args, blocks, first_lane, x, sums, results);
    }
  }
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      Vec::store(args.to + i * kPanelWidth + first_lane + j * Vec::kLanes, results[i][j]);
    }
  }
}

/// The tile functions of a format by rows.
template <class Dot, class Blocks>
struct BlockTiles {
  using Tile = void (*)(const BlockTileArgs<Dot>&, size_t first_lane);
  Tile by_rows[Dot::kMaxRows + 1] = {};

  template <size_t kRows>
  constexpr void fill() {
    by_rows[kRows] = block_tile<Dot, Blocks, kRows>;
    if constexpr (kRows < Dot::kMaxRows) fill<kRows + 1>();
  }
  constexpr BlockTiles() { fill<1>(); }

  /// All rows of `args` and all of a panel.
  void run(BlockTileArgs<Dot> args, size_t rows) const {
    const size_t tiles = (rows + Dot::kMaxRows - 1) / Dot::kMaxRows;
    const BlockTileArgs<Dot> first = args;
    for (size_t tile = 0; tile < tiles; ++tile) {  // of nearly the same height
      const size_t row = tile * rows / tiles;
      const size_t height = (tile + 1) * rows / tiles - row;
      args.x = first.x + row * args.ldx;
      args.sums = first.sums + row * args.ldx;
      args.to = first.to + row * kPanelWidth;
      const size_t lanes = Dot::vectors(height) * Dot::Vec::kLanes;
      for (size_t lane = 0; lane < kPanelWidth; lane += lanes) by_rows[height](args, lane);
    }
  }
};

/// Writes y for `rows` rows from `begin` on, from a panel's sums.
template <class Dot>
void finish_block_rows(const MatmulArgs& args, const float* sums, size_t panel, size_t begin, size_t rows) {
  using Vec = typename Dot::Vec;
  for (size_t lane = 0; lane < kPanelWidth; lane += Vec::kLanes) {
    const size_t column = panel * kPanelWidth + lane;
    if (column >= args.n) return;
    const size_t left = args.n - column;
    const bool whole = left >= Vec::kLanes;
    Vec bias = Vec::zero();
    if (args.bias != nullptr) {
      bias = whole ? Vec::load(args.bias + column) : Vec::load(args.bias + column, left);
    }
    for (size_t i = 0; i < rows; ++i) {
      Vec result = Vec::mul(Vec::load(sums + i * kPanelWidth + lane), Vec::set1(args.x_scales[begin + i]));
      if (args.bias != nullptr) result = Vec::add(result, bias);
      float* y = args.y + (begin + i) * args.ldy + column;
      if (whole) {
        Vec::store(y, result);
      } else {
        Vec::store(y, result, left);
      }
    }
  }
}

template <WeightFormat kFormat, class Dot>
void matmul_block_panel(const MatmulArgs& args, size_t panel, size_t begin, size_t rows, float* results,
                        std::byte* expanded) {
  using Expanded = ExpandedBlocks<kFormat, Dot>;
  static constexpr BlockTiles<Dot, StoredBlocks<kFormat, Dot>> kStored{};
  static constexpr BlockTiles<Dot, Expanded> kExpanded{};
  constexpr BlockLayout kLayout = block_layout(kFormat);
  const std::byte* w = args.panels + panel * args.panel_bytes;
  const uint8_t* x = static_cast<const uint8_t*>(args.x) + begin * args.ldx;
  size_t k = 0;
  do {  // runs once even if K is 0
    const size_t inputs = args.k - k < kBlockChunk ? args.k - k : kBlockChunk;
    BlockTileArgs<Dot> tile = {.w = w + k / kLayout.inputs * kLayout.bytes(),
                               .x = x + k,
                               .sums = x + args.k + k / kLayout.group * sizeof(int32_t),
                               .ldx = args.ldx,
                               .count = inputs / kBlockInputs,
                               .to = results,
                               .resume = k != 0};
    if (rows <= Dot::kMaxRows) {
      kStored.run(tile, rows);
    } else {
      Expanded::expand(tile.w, tile.count, expanded);
      tile.w = expanded;
      kExpanded.run(tile, rows);
    }
    k += inputs;
  } while (k < args.k);
  finish_block_rows<Dot>(args, results, panel, begin, rows);
}

template <WeightFormat kFormat, class Dot>
void matmul_blocks(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  const size_t most = block_rows(args.m, args.k);
  auto* results = reinterpret_cast<float*>(args.scratch);
  std::byte* expanded = args.scratch + most * kPanelWidth * sizeof(float);
  for (size_t begin = 0; begin < args.m; begin += most) {
    const size_t rows = args.m - begin < most ? args.m - begin : most;
    for (size_t panel = first_panel; panel < last_panel; ++panel) {
      matmul_block_panel<kFormat, Dot>(args, panel, begin, rows, results, expanded);
    }
  }
}

}  // namespace quire::kernels::cpu
