#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/x86/matmul_kernels.h"

// Matmul over int4 panels, in integers up to the end as for int8, so that three methods give the same result:
// directly from the nibbles, where a group's products are summed before they are scaled; with weights that
// are scaled in registers; or, with many rows where int8 has an instruction of its own, from the panel
// converted to int8.
//
// A `Nibbles` says what a group (see kInt4GroupBytes) holds, and how it is multiplied:
//   kVectors      vectors of outputs of a tile that reads nibbles
//   kPrefetch     how far ahead a tile that alone reads a panel fetches it, in bytes
//   kPlaces       or from how many places of the next panel in turn; 0: not so
//   kExpands      whether many rows take the panel as int8; otherwise all rows are multiplied with nibbles
//   kScaledRows   up to how many rows take scaled weights, if they are too many to read nibbles; or 0
//   group         all of it as int8, eight steps of [32 outputs][4]; only if kExpands
//   low, high     of the bytes of two steps, the first's weights, the second's, without the scale
//   scales        of so many outputs as a Sum has lanes, in the form that add_scaled takes
//   multiply_add  the products of a group so far + weights * activations
//   add_scaled    sum + those of the whole group * scales
//   tables        of as many outputs, what the next two need; all three only if kScaledRows > 0
//   scaled_low, scaled_high   as low and high, with the scale
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
/// `lane`: that of the first output.
template <class Kernel, class Nibbles, size_t kRows>
void int4_tile(const TileArgs<Kernel>& args, size_t lane) {
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
  constexpr size_t kStep = kRows * Kernel::kStepK;
  for (size_t group = 0; group < args.steps; ++group) {
    Sum dots[kRows][kVectors];
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) dots[i][j] = Sum::zero();
    }
    QUIRE_UNROLL
    for (size_t pair = 0; pair < kPairs; ++pair, x += 2 * kStep) {
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
        const auto x1 = Kernel::broadcast(x + kStep + i * Kernel::kStepK, 0);
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

/// The same with scaled weights, one vector of outputs wide: so more rows share the cost of scaling.
template <class Kernel, class Nibbles, size_t kRows>
void scaled_int4_tile(const TileArgs<Kernel>& args, size_t lane) {
  using Sum = typename Kernel::Sum;
  constexpr size_t kPairs = kInt4Group / Kernel::kStepK / 2;
  constexpr size_t kPairBytes = kPanelWidth * Kernel::kStepK;
  constexpr size_t kStep = kRows * Kernel::kStepK;

  Sum sums[kRows][1];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) sums[i][0] = Sum::zero();
  const int8_t* w = args.w;
  const typename Kernel::X* x = args.x;
  const char* ahead = args.ahead;
  const float* y = args.y;
  for (size_t group = 0; group < args.steps; ++group) {
    if (group < kRows) {  // see matmul_tile
      __builtin_prefetch(y, 1);
      y += args.ldy;
    }
    const auto tables = Nibbles::tables(w + lane);
    QUIRE_UNROLL
    for (size_t pair = 0; pair < kPairs; ++pair, x += 2 * kStep) {
      for (size_t line = 0; line < 2 * kStep; line += 64) __builtin_prefetch(x + kRowsPrefetch + line);
      const int8_t* from = w + kPanelWidth + pair * kPairBytes + lane * Kernel::kStepK;
      const Sum both = Sum::load(reinterpret_cast<const float*>(from));
      const auto add = [&](Sum weights, const typename Kernel::X* factors) __attribute__((always_inline)) {
        QUIRE_UNROLL
        for (size_t i = 0; i < kRows; ++i) {
          const auto factor = Kernel::broadcast(factors + i * Kernel::kStepK, 0);
          sums[i][0] = Kernel::multiply_add(sums[i][0], weights, factor);
        }
      };
      add(Nibbles::scaled_low(both, tables), x);
      add(Nibbles::scaled_high(both, tables), x + kStep);
    }
    for (size_t line = 0; line < args.ahead_step; line += 64) __builtin_prefetch(ahead + line, 0, 2);
    w += kInt4GroupBytes;
    ahead += args.ahead_step;
  }
  store_tile<Kernel, kRows, 1>(args, sums);
}

/// These tile functions by rows.
template <class Kernel, class Nibbles>
struct Int4Tiles {
  using Tile = void (*)(const TileArgs<Kernel>&, size_t lane);
  static constexpr size_t kVectors = Nibbles::kVectors;
  /// Results, a group's sums, the weights of two steps and temporaries must fit into the registers.
  static constexpr size_t kFewRows = (Kernel::Vec::kRegisters - 2 * kVectors - 2) / (2 * kVectors);
  static constexpr size_t kMaxRows = Nibbles::kScaledRows > 0 ? kMostInterleavedRows : kFewRows;
  static_assert(kMaxRows == kFewRows || kMaxRows / 2 > kFewRows);  // tiles of one matmul are of one width

  Tile by_rows[kMaxRows + 1] = {};

  template <size_t kRows>
  constexpr void fill() {
    if constexpr (kRows <= kFewRows) {
      by_rows[kRows] = int4_tile<Kernel, Nibbles, kRows>;
    } else {
      by_rows[kRows] = scaled_int4_tile<Kernel, Nibbles, kRows>;
    }
    if constexpr (kRows < kMaxRows) fill<kRows + 1>();
  }
  constexpr Int4Tiles() { fill<1>(); }

  /// Of a tile of so many rows.
  static constexpr size_t outputs(size_t rows) { return (rows <= kFewRows ? kVectors : 1) * Kernel::kLanes; }
  /// Where weights are not scaled, expanding a panel costs less than decoding its nibbles for several tiles.
  static constexpr bool takes_expanded(size_t m) {
    return Nibbles::kExpands && m > kFewRows && m > Nibbles::kScaledRows;
  }
  /// Of interleaved rows.
  static constexpr size_t row_tiles(size_t m) {
    if constexpr (Nibbles::kExpands) {
      if (takes_expanded(m)) return Tiles<Kernel>::row_tiles(m);
    }
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

/// All rows with the outputs of one panel, directly from the nibbles or with scaled weights.
template <class Kernel, class Nibbles>
void matmul_nibbles(const MatmulArgs& args, size_t panel_index) {
  using T = Int4Tiles<Kernel, Nibbles>;
  static constexpr T kTiles{};
  const std::byte* panel = args.panels + panel_index * args.panel_bytes;
  const size_t begin_column = panel_index * kPanelWidth;
  const size_t end_column = begin_column + kPanelWidth < args.n ? begin_column + kPanelWidth : args.n;
  const size_t row_tiles = T::row_tiles(args.m);
  const size_t outputs = T::outputs(args.m);
  const size_t passes = (end_column - begin_column + outputs - 1) / outputs * row_tiles;
  size_t pass = 0;
  for (size_t column = begin_column; column < end_column; column += outputs) {
    for (size_t tile = 0; tile < row_tiles; ++tile, ++pass) {
      const size_t row = first_row(tile, row_tiles, args.m);
      const size_t rows = first_row(tile + 1, row_tiles, args.m) - row;
      const Int4Ahead ahead(panel, args.panel_bytes, pass, passes, Nibbles::kPrefetch);
      kTiles.by_rows[rows]({.w = reinterpret_cast<const int8_t*>(panel),
                            .x = static_cast<const typename Kernel::X*>(args.x) + row * args.ldx,
                            .ahead = ahead.from,
                            .ahead_step = ahead.step,
                            .steps = args.k / kInt4Group,
                            .y = args.y + row * args.ldy + column,
                            .ldy = args.ldy,
                            .columns = args.n - column,
                            .last = true,
                            .bias = args.bias != nullptr ? args.bias + column : nullptr,
                            .x_scales = args.x_scales + row,
                            .w_scales = args.w_scales + column,
                            .offsets = args.offsets + column},
                           column % kPanelWidth);
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
      if (Int4Tiles<Kernel, Nibbles>::takes_expanded(args.m)) {
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
