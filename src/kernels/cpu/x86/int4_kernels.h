#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/x86/matmul_kernels.h"

// Matmul over int4 panels, in integers up to the end as for int8, so that two methods give the same result:
// directly from the nibbles, where a group's products are summed before they are scaled; or, with many rows
// where int8 has an instruction of its own, from the panel converted to int8.
//
// A `Nibbles` says what a group (see kInt4GroupBytes) holds, and how it is multiplied:
//   kVectors      vectors of outputs of a tile that reads nibbles
//   kPrefetch     how far ahead a tile that alone reads a panel fetches it, in bytes
//   kPlaces       or from how many places of the next panel in turn; 0: not so
//   kExpands      whether many rows take the panel as int8; otherwise all rows are multiplied with nibbles
//   group         all of it as int8, eight steps of [32 outputs][4]; only if kExpands
//   low, high     of the bytes of two steps, the first's weights, the second's, without the scale
//   scales        of so many outputs as a Sum has lanes, in the form that add_scaled takes
//   multiply_add  the products of a group so far + weights * activations
//   add_scaled    sum + those of the whole group * scales
namespace quire::kernels::cpu {

inline constexpr size_t kInt4Group = 32;
// The inputs of a panel that are converted at a time: with few rows, which pass them quickly, they stay in
// L1; more rows would lose more by storing their sums so often.
inline constexpr size_t kInt4RowsInL1 = 32;
inline constexpr size_t kInt4InputsInL1 = 512;
inline constexpr size_t kInt4InputsInL2 = 4096;

/// Lines of the panel behind the one that is read, of kPlaces places in turn: the machine itself fetches what
/// follows in each of them, so that memory is kept busy.
template <size_t kPlaces>
class Places {
 public:
  template <class Args>
  explicit QUIRE_INLINE Places(const Args& args)
      : next_(reinterpret_cast<const char*>(args.w) + args.steps * kInt4GroupBytes),
        apart_((args.steps * kInt4GroupBytes + kPlaces * kLine - 1) / (kPlaces * kLine) * kLine) {}
  /// As many as have `bytes`.
  QUIRE_INLINE void fetch_until(size_t bytes) {
    for (; line_ * kLine < bytes; ++line_) {
      __builtin_prefetch(next_ + line_ % kPlaces * apart_ + line_ / kPlaces * kLine, 0, 2);
    }
  }

 private:
  static constexpr size_t kLine = 64;
  const char* next_;
  size_t apart_;
  size_t line_ = 0;
};
template <>
class Places<0> {
 public:
  template <class Args>
  explicit QUIRE_INLINE Places(const Args&) {}
};

/// A tile computed directly from the nibbles. args: steps are groups, w is the beginning of the panel;
/// `lane`: that of the first output. `tile_rows`: the number of interleaved rows, of which it computes kRows.
template <class Kernel, class Nibbles, size_t kRows>
void int4_tile(const TileArgs<Kernel>& args, size_t lane, size_t tile_rows) {
  using Sum = typename Kernel::Sum;
  constexpr size_t kVectors = Nibbles::kVectors;
  constexpr size_t kPairs = kInt4Group / Kernel::kStepK / 2;
  constexpr size_t kPairBytes = kPanelWidth * Kernel::kStepK;

  Sum sums[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) sums[i][j] = Sum::zero();
  }
  const int8_t* w = args.w;
  const typename Kernel::X* x = args.x;
  const char* ahead = args.ahead;
  Places<Nibbles::kPlaces> places(args);
  const size_t step = (Nibbles::kExpands ? tile_rows : kRows) * Kernel::kStepK;
  for (size_t group = 0; group < args.steps; ++group) {
    Sum dots[kRows][kVectors];
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) dots[i][j] = Sum::zero();
    }
    QUIRE_UNROLL
    for (size_t pair = 0; pair < kPairs; ++pair, x += 2 * step) {
      Sum first[kVectors];
      Sum second[kVectors];
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) {
        const int8_t* from =
            w + kPanelWidth + pair * kPairBytes + (lane + j * Kernel::kLanes) * Kernel::kStepK;
        const Sum both = Sum::load(reinterpret_cast<const float*>(from));
        first[j] = Nibbles::low(both);
        second[j] = Nibbles::high(both);
      }
      QUIRE_UNROLL
      for (size_t i = 0; i < kRows; ++i) {
        const auto x0 = Kernel::broadcast(x + i * Kernel::kStepK, 0);
        const auto x1 = Kernel::broadcast(x + step + i * Kernel::kStepK, 0);
        QUIRE_UNROLL
        for (size_t j = 0; j < kVectors; ++j) {
          dots[i][j] = Nibbles::template multiply_add<Kernel>(dots[i][j], first[j], x0);
          dots[i][j] = Nibbles::template multiply_add<Kernel>(dots[i][j], second[j], x1);
        }
      }
    }
    if constexpr (Nibbles::kPlaces > 0) {
      places.fetch_until((group + 1) * kInt4GroupBytes);
    } else {
      // Wide vectors read nibbles too soon to wait for L2 (2).
      constexpr int kCache = Kernel::kLanes >= 16 ? 3 : 2;
      for (size_t line = 0; line < args.ahead_step; line += 64) __builtin_prefetch(ahead + line, 0, kCache);
    }
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      const Sum scales = Nibbles::scales(w + lane + j * Kernel::kLanes);
      QUIRE_UNROLL
      for (size_t i = 0; i < kRows; ++i) sums[i][j] = Nibbles::add_scaled(sums[i][j], dots[i][j], scales);
    }
    w += kInt4GroupBytes;
    ahead += args.ahead_step;
  }
  store_tile<Kernel, kRows, kVectors>(args, sums);
}

/// These tile functions by rows.
template <class Kernel, class Nibbles>
struct Int4Tiles {
  using Tile = void (*)(const TileArgs<Kernel>&, size_t lane, size_t tile_rows);
  static constexpr size_t kVectors = Nibbles::kVectors;
  static constexpr size_t kOutputs = kVectors * Kernel::kLanes;
  /// Results, a group's sums, the weights of two steps and temporaries must fit into the registers.
  static constexpr size_t kMaxRows = (Kernel::Vec::kRegisters - 2 * kVectors - 2) / (2 * kVectors);
  /// With more rows, expanding a panel costs less than decoding its nibbles twice.
  static constexpr size_t kFewRows = kMaxRows;

  Tile by_rows[kMaxRows + 1] = {};

  template <size_t kRows>
  constexpr void fill() {
    by_rows[kRows] = int4_tile<Kernel, Nibbles, kRows>;
    if constexpr (kRows < kMaxRows) fill<kRows + 1>();
  }
  constexpr Int4Tiles() { fill<1>(); }

  /// Of interleaved rows: those of the kernel for int8 where it takes them too.
  static constexpr size_t row_tiles(size_t m) {
    if constexpr (Nibbles::kExpands) return Tiles<Kernel>::row_tiles(m);
    return (m + kMaxRows - 1) / kMaxRows;
  }
};

/// What a tile fetches ahead: where it is one of several that read a panel, its share of the next panel.
struct Int4Ahead {
  const char* from;
  size_t step;  // bytes per group

  Int4Ahead(const std::byte* panel, size_t bytes, size_t number, size_t of, size_t prefetch) {
    const auto* begin = reinterpret_cast<const char*>(panel);
    from = of == 1 ? begin + prefetch : begin + bytes + number * bytes / of;
    step = (kInt4GroupBytes + of - 1) / of;
  }
};

/// All rows with the outputs of one panel, directly from the nibbles.
template <class Kernel, class Nibbles>
void matmul_nibbles(const MatmulArgs& args, size_t panel_index) {
  using T = Int4Tiles<Kernel, Nibbles>;
  static constexpr T kTiles{};
  const size_t groups = args.k / kInt4Group;
  const std::byte* panel = args.panels + panel_index * args.panel_bytes;
  const size_t begin_column = panel_index * kPanelWidth;
  const size_t end_column = begin_column + kPanelWidth < args.n ? begin_column + kPanelWidth : args.n;
  const size_t row_tiles = T::row_tiles(args.m);
  const size_t passes = (end_column - begin_column + T::kOutputs - 1) / T::kOutputs * row_tiles;
  size_t pass = 0;
  for (size_t column = begin_column; column < end_column; column += T::kOutputs) {
    for (size_t tile = 0; tile < row_tiles; ++tile, ++pass) {
      const size_t begin = first_row(tile, row_tiles, args.m);
      const size_t tile_rows = first_row(tile + 1, row_tiles, args.m) - begin;
      const size_t parts = (tile_rows + T::kMaxRows - 1) / T::kMaxRows;
      for (size_t part = 0; part < parts; ++part) {
        const size_t shift = first_row(part, parts, tile_rows);
        const size_t row = begin + shift;
        const Int4Ahead ahead(panel, args.panel_bytes, pass * parts + part, passes * parts,
                              Nibbles::kPrefetch);
        kTiles.by_rows[first_row(part + 1, parts, tile_rows) - shift](
            {.w = reinterpret_cast<const int8_t*>(panel),
             .x = static_cast<const typename Kernel::X*>(args.x) + begin * args.ldx + shift * Kernel::kStepK,
             .ahead = ahead.from,
             .ahead_step = ahead.step,
             .steps = groups,
             .y = args.y + row * args.ldy + column,
             .ldy = args.ldy,
             .columns = args.n - column,
             .last = true,
             .bias = args.bias != nullptr ? args.bias + column : nullptr,
             .x_scales = args.x_scales + row,
             .w_scales = args.w_scales + column,
             .offsets = args.offsets + column},
            column % kPanelWidth, tile_rows);
      }
    }
  }
}

/// Many rows: a stretch of the panel is converted to int8 in the scratch memory.
template <class Kernel, class Nibbles>
void matmul_expanded(const MatmulArgs& args, size_t panel) {
  static constexpr Tiles<Kernel> kTiles{};
  constexpr size_t kStepElements = kPanelWidth * Kernel::kStepK;
  const size_t chunk = (args.m <= kInt4RowsInL1 ? kInt4InputsInL1 : kInt4InputsInL2) / Kernel::kStepK;
  static_assert(Tiles<Kernel>::max_rows(0) <= Int4Tiles<Kernel, Nibbles>::kFewRows);  // no tile of two panels
  const size_t width = Tiles<Kernel>::width_for(args.m);
  const size_t outputs = Tiles<Kernel>::vectors(width) * Kernel::kLanes;
  const size_t row_tiles = Tiles<Kernel>::row_tiles(args.m);
  const size_t steps = args.k / Kernel::kStepK;
  auto* expanded = reinterpret_cast<int8_t*>(args.scratch);
  size_t step = 0;
  do {  // runs once even if K is 0
    const size_t count = steps - step < chunk ? steps - step : chunk;
    const size_t groups = count * Kernel::kStepK / kInt4Group;
    const std::byte* from =
        args.panels + panel * args.panel_bytes + step * Kernel::kStepK / kInt4Group * kInt4GroupBytes;
    for (size_t i = 0; i < groups; ++i) {
      Nibbles::group(from + i * kInt4GroupBytes, expanded + i * kInt4Group * kPanelWidth);
    }
    for (size_t lane = 0; lane < kPanelWidth && panel * kPanelWidth + lane < args.n; lane += outputs) {
      for (size_t tile = 0; tile < row_tiles; ++tile) {
        multiply_tile<Kernel>(args, kTiles, width, panel * kPanelWidth + lane, tile,
                              {.w = expanded + lane * Kernel::kStepK,
                               .panel_elements = kStepElements * count,
                               .step = step,
                               .count = count,
                               .last = step + count == steps,
                               .next = reinterpret_cast<const char*>(from + groups * kInt4GroupBytes),
                               .next_bytes = groups * kInt4GroupBytes,
                               .tiles = row_tiles});
      }
    }
    step += count;
  } while (step < steps);
}

template <class Kernel, class Nibbles>
void matmul_int4(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  for (size_t panel = first_panel; panel < last_panel; ++panel) {
    if constexpr (Nibbles::kExpands) {
      if (args.m > Int4Tiles<Kernel, Nibbles>::kFewRows) {
        matmul_expanded<Kernel, Nibbles>(args, panel);
        continue;
      }
    }
    matmul_nibbles<Kernel, Nibbles>(args, panel);
  }
}

template <class Kernel, class Nibbles>
constexpr MatmulKernel int4_kernel(RowForm rows) {
  return {matmul_int4<Kernel, Nibbles>, rows, Int4Tiles<Kernel, Nibbles>::row_tiles};
}

}  // namespace quire::kernels::cpu
