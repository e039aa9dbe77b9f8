#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/x86/unroll.h"

// Matmul over packed panels: register tiles of rows x vectors of outputs, K in sequence for every lane.
// Where K is cut into chunks the accumulators wait in y, exactly; so neither the tile's shape nor the chunk
// shows in a result.
//
// A `Kernel` says how one step along K is taken:
//   Vec, kLanes         f32 accumulators
//   Element, kStepK     what a panel holds; consecutive k per step (a lane's kStepK elements are adjacent)
//   X                   what the activations are
//   kParts              how many parts a step is taken in, one after another
//   load, broadcast     of one part: kLanes lanes of weights; activations in all lanes
//   multiply_add        accumulator + weights * activations
namespace quire::cpu {

inline constexpr size_t kPrefetchBytes = 2048;
// Of a panel group: with the activations of a tile it stays in L2 while the row tiles pass.
inline constexpr size_t kChunkBytes = 256 * 1024;

/// f32 and f16 weights.
template <class V, class Format>
struct PlainKernel {
  using Vec = V;
  using Element = typename Format::Element;
  using X = float;
  static constexpr size_t kLanes = V::kLanes;
  static constexpr size_t kStepK = 1;
  static constexpr size_t kParts = 1;
  static inline __attribute__((always_inline)) V load(const Element* p, size_t) { return Format::load(p); }
  static inline __attribute__((always_inline)) V broadcast(const X* x, size_t) { return V::set1(*x); }
  static inline __attribute__((always_inline)) V multiply_add(V sum, V w, V x) { return V::fma(w, x, sum); }
};

/// bf16 weights without bf16 instructions: widened by shift and mask, multiplied in f32.
template <class V, class Pairs>
struct WidenedKernel {
  using Vec = V;
  using Element = uint16_t;
  using X = float;
  static constexpr size_t kLanes = V::kLanes;
  static constexpr size_t kStepK = 2;
  static constexpr size_t kParts = 2;
  static inline __attribute__((always_inline)) V load(const Element* p, size_t part) {
    return part == 0 ? Pairs::first(p) : Pairs::second(p);
  }
  static inline __attribute__((always_inline)) V broadcast(const X* x, size_t part) {
    return V::set1(x[part]);
  }
  static inline __attribute__((always_inline)) V multiply_add(V sum, V w, V x) { return V::fma(w, x, sum); }
};

/// One chunk of K of one tile.
template <class Kernel>
struct TileArgs {
  const typename Kernel::Element* w;  // the tile's first vector at the chunk's first step
  size_t panel_elements;              // from a panel to the next
  const typename Kernel::X* x;
  size_t ldx;
  size_t steps;
  float* y;
  size_t ldy;
  size_t columns;     // that y has from the tile's first on
  const float* bias;  // added after the chunk, or null
  bool resume;        // from what y holds, not from zero
};

/// kRows rows x kVectors vectors of outputs, held in registers for the length of the chunk.
template <class Kernel, size_t kRows, size_t kVectors>
void matmul_tile(const TileArgs<Kernel>& args) {
  using V = typename Kernel::Vec;
  constexpr size_t kLanes = Kernel::kLanes;
  constexpr size_t kVectorElements = kLanes * Kernel::kStepK;
  constexpr size_t kStepElements = kPanelWidth * Kernel::kStepK;
  constexpr size_t kPanelVectors = kPanelWidth / kLanes;
  constexpr size_t kVectorBytes = kVectorElements * sizeof(typename Kernel::Element);

  V sums[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      sums[i][j] = V::zero();
      if (!args.resume || j * kLanes >= args.columns) continue;
      const float* y = args.y + i * args.ldy + j * kLanes;
      sums[i][j] = args.columns >= (j + 1) * kLanes ? V::load(y) : V::load(y, args.columns - j * kLanes);
    }
  }

  const typename Kernel::Element* w = args.w;
  const typename Kernel::X* x = args.x;
  for (size_t step = 0; step < args.steps; ++step, w += kStepElements, x += Kernel::kStepK) {
    QUIRE_UNROLL
    for (size_t part = 0; part < Kernel::kParts; ++part) {
      decltype(Kernel::load(w, part)) weights[kVectors];
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) {
        const typename Kernel::Element* from =
            w + (j / kPanelVectors) * args.panel_elements + (j % kPanelVectors) * kVectorElements;
        weights[j] = Kernel::load(from, part);
        if (part == 0 && j * kVectorBytes % 64 == 0) {
          __builtin_prefetch(reinterpret_cast<const char*>(from) + kPrefetchBytes);
        }
      }
      QUIRE_UNROLL
      for (size_t i = 0; i < kRows; ++i) {
        const auto factor = Kernel::broadcast(x + i * args.ldx, part);
        QUIRE_UNROLL
        for (size_t j = 0; j < kVectors; ++j) {
          sums[i][j] = Kernel::multiply_add(sums[i][j], weights[j], factor);
        }
      }
    }
  }

  QUIRE_UNROLL
  for (size_t j = 0; j < kVectors; ++j) {
    if (j * kLanes >= args.columns) break;
    const size_t part = args.columns - j * kLanes;
    const bool whole = part >= kLanes;
    V bias = V::zero();
    if (args.bias != nullptr)
      bias = whole ? V::load(args.bias + j * kLanes) : V::load(args.bias + j * kLanes, part);
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      float* y = args.y + i * args.ldy + j * kLanes;
      const V sum = args.bias != nullptr ? V::add(sums[i][j], bias) : sums[i][j];
      if (whole) {
        V::store(y, sum);
      } else {
        V::store(y, sum, part);
      }
    }
  }
}

/// The tiles of a kernel by width and rows. Width 0 is two panels side by side (for few rows: more weights in
/// flight), 1 one panel, 2 half of one.
template <class Kernel>
struct Tiles {
  using Tile = void (*)(const TileArgs<Kernel>&);
  static constexpr size_t kPanelVectors = kPanelWidth / Kernel::kLanes;
  static constexpr size_t kWidths = kPanelVectors >= 4 ? 3 : 2;
  static constexpr size_t vectors(size_t width) { return 2 * kPanelVectors >> width; }
  /// Accumulators, weights and one activation must fit the registers; a single row's weights need none.
  static constexpr size_t max_rows(size_t width) {
    const size_t free = Kernel::Vec::kRegisters - 1;
    return free < 3 * vectors(width) ? 1 : free / vectors(width) - 1;
  }
  static constexpr size_t kMaxRows = max_rows(kWidths - 1);

  Tile by_rows[kWidths][kMaxRows + 1] = {};

  template <size_t kWidth, size_t kRows>
  constexpr void fill() {
    by_rows[kWidth][kRows] = matmul_tile<Kernel, kRows, vectors(kWidth)>;
    if constexpr (kRows < max_rows(kWidth)) fill<kWidth, kRows + 1>();
  }
  constexpr Tiles() {
    fill<0, 1>();
    fill<1, 1>();
    if constexpr (kWidths > 2) fill<2, 1>();
  }
};

/// All rows of x against the vectors of one tile's width, chunk after chunk of K.
template <class Kernel>
void matmul_column(const MatmulArgs& args, const Tiles<Kernel>& tiles, size_t width, size_t column) {
  using Element = typename Kernel::Element;
  constexpr size_t kStepElements = kPanelWidth * Kernel::kStepK;
  const size_t steps = (args.k + Kernel::kStepK - 1) / Kernel::kStepK;
  const size_t panel_elements = steps * kStepElements;
  const Element* w = reinterpret_cast<const Element*>(args.panels) + column / kPanelWidth * panel_elements +
                     column % kPanelWidth * Kernel::kStepK;
  const size_t max_rows = Tiles<Kernel>::max_rows(width);
  const size_t row_tiles = (args.m + max_rows - 1) / max_rows;
  const size_t step_bytes = kStepElements * sizeof(Element) * (width == 0 ? 2 : 1);
  const size_t chunk = row_tiles == 1 ? steps : kChunkBytes / step_bytes;
  size_t step = 0;
  do {
    const size_t count = steps - step < chunk ? steps - step : chunk;
    const bool last = step + count == steps;
    for (size_t tile = 0; tile < row_tiles; ++tile) {  // of nearly the same height
      const size_t row = tile * args.m / row_tiles;
      const size_t rows = (tile + 1) * args.m / row_tiles - row;
      tiles.by_rows[width][rows](
          {.w = w + step * kStepElements,
           .panel_elements = panel_elements,
           .x = static_cast<const typename Kernel::X*>(args.x) + row * args.ldx + step * Kernel::kStepK,
           .ldx = args.ldx,
           .steps = count,
           .y = args.y + row * args.ldy + column,
           .ldy = args.ldy,
           .columns = args.n - column,
           .bias = last && args.bias != nullptr ? args.bias + column : nullptr,
           .resume = step != 0});
    }
    step += count;
  } while (step < steps);
}

template <class Kernel>
void matmul(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  using T = Tiles<Kernel>;
  static constexpr T kTiles{};
  size_t width = 0;
  while (width + 1 < T::kWidths && T::max_rows(width) < args.m) ++width;
  const size_t end = last_panel * kPanelWidth;
  size_t column = first_panel * kPanelWidth;
  while (column < end && column < args.n) {
    const size_t outputs = T::vectors(width) * Kernel::kLanes;
    const bool fits = column + outputs <= end;  // else two panels are asked for where one is left
    matmul_column<Kernel>(args, kTiles, fits ? width : 1, column);
    column += fits ? outputs : kPanelWidth;
  }
}

}  // namespace quire::cpu
