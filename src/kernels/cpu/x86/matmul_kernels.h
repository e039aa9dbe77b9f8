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
//   Vec, kLanes         the results, f32
//   Sum                 an accumulator of as many lanes: zero, load and store in y, as they are
//   Element, kStepK     what a panel holds; consecutive k per step (a lane's kStepK elements are adjacent)
//   X                   what the activations are
//   kParts              how many parts a step is taken in, one after another
//   kTemporaries        registers that it needs besides accumulators and a row's width of weights
//   load, broadcast     of one part: kLanes lanes of weights; activations in all lanes
//   multiply_add        accumulator + weights * activations
//   finish              the result of row i, vector j of the tile
namespace quire::cpu {

inline constexpr size_t kPrefetchBytes = 2048;
// Of a panel group: with the activations of a tile it stays in L2 while the row tiles pass.
inline constexpr size_t kChunkBytes = 256 * 1024;

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
  size_t columns;  // that y has from the tile's first on
  bool resume;     // from what y holds, not from zero
  bool last;       // y takes the result, not the accumulators
  // Of the tile's first column or row; see MatmulArgs.
  const float* bias;
  const float* x_scales;
  const float* w_scales;
  const int32_t* offsets;
};

/// f32 and f16 weights.
template <class V, class Format>
struct PlainKernel {
  using Vec = V;
  using Sum = V;
  using Element = typename Format::Element;
  using X = float;
  static constexpr size_t kLanes = V::kLanes;
  static constexpr size_t kStepK = 1;
  static constexpr size_t kParts = 1;
  static constexpr size_t kTemporaries = 1;
  static inline __attribute__((always_inline)) V load(const Element* p, size_t) { return Format::load(p); }
  static inline __attribute__((always_inline)) V broadcast(const X* x, size_t) { return V::set1(*x); }
  static inline __attribute__((always_inline)) V multiply_add(V sum, V w, V x) { return V::fma(w, x, sum); }
  static inline __attribute__((always_inline)) V finish(V sum, const TileArgs<PlainKernel>&, size_t, size_t) {
    return sum;
  }
};

/// bf16 weights without bf16 instructions: widened by shift and mask, multiplied in f32.
template <class V, class Pairs>
struct WidenedKernel {
  using Vec = V;
  using Sum = V;
  using Element = uint16_t;
  using X = float;
  static constexpr size_t kLanes = V::kLanes;
  static constexpr size_t kStepK = 2;
  static constexpr size_t kParts = 2;
  static constexpr size_t kTemporaries = 1;
  static inline __attribute__((always_inline)) V load(const Element* p, size_t part) {
    return part == 0 ? Pairs::first(p) : Pairs::second(p);
  }
  static inline __attribute__((always_inline)) V broadcast(const X* x, size_t part) {
    return V::set1(x[part]);
  }
  static inline __attribute__((always_inline)) V multiply_add(V sum, V w, V x) { return V::fma(w, x, sum); }
  static inline __attribute__((always_inline)) V finish(V sum, const TileArgs<WidenedKernel>&, size_t,
                                                        size_t) {
    return sum;
  }
};

/// int8 weights and activations. `Dot` says how four products are added to each lane of integers, and what
/// the activations are.
template <class Dot>
struct IntegerKernel {
  using Vec = typename Dot::Vec;
  using Sum = typename Dot::Sum;
  using Element = int8_t;
  using X = uint8_t;
  static constexpr size_t kLanes = Vec::kLanes;
  static constexpr size_t kStepK = 4;
  static constexpr size_t kParts = 1;
  static constexpr size_t kTemporaries = Dot::kTemporaries;
  static inline __attribute__((always_inline)) Sum load(const Element* p, size_t) {
    return Sum::load(reinterpret_cast<const float*>(p));
  }
  static inline __attribute__((always_inline)) Sum broadcast(const X* x, size_t) { return Sum::set4(x); }
  static inline __attribute__((always_inline)) Sum multiply_add(Sum sum, Sum w, Sum x) {
    return Dot::multiply_add(sum, w, x);
  }
  static inline __attribute__((always_inline)) Vec finish(Sum sum, const TileArgs<IntegerKernel>& args,
                                                          size_t i, size_t j) {
    if constexpr (Dot::kShifted)
      sum = Sum::sub(sum, Sum::load(reinterpret_cast<const float*>(args.offsets + j * kLanes)));
    return Vec::mul(Vec::mul(Sum::to_float(sum), Vec::set1(args.x_scales[i])),
                    Vec::load(args.w_scales + j * kLanes));
  }
};

/// kRows rows x kVectors vectors of outputs, held in registers for the length of the chunk.
template <class Kernel, size_t kRows, size_t kVectors>
void matmul_tile(const TileArgs<Kernel>& args) {
  using V = typename Kernel::Vec;
  using Sum = typename Kernel::Sum;
  constexpr size_t kLanes = Kernel::kLanes;
  constexpr size_t kVectorElements = kLanes * Kernel::kStepK;
  constexpr size_t kStepElements = kPanelWidth * Kernel::kStepK;
  constexpr size_t kPanelVectors = kPanelWidth / kLanes;
  constexpr size_t kVectorBytes = kVectorElements * sizeof(typename Kernel::Element);

  Sum sums[kRows][kVectors];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      sums[i][j] = Sum::zero();
      if (!args.resume || j * kLanes >= args.columns) continue;
      const float* y = args.y + i * args.ldy + j * kLanes;
      sums[i][j] = args.columns >= (j + 1) * kLanes ? Sum::load(y) : Sum::load(y, args.columns - j * kLanes);
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
    if (args.last && args.bias != nullptr)
      bias = whole ? V::load(args.bias + j * kLanes) : V::load(args.bias + j * kLanes, part);
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      float* y = args.y + i * args.ldy + j * kLanes;
      if (!args.last) {
        if (whole) {
          Sum::store(y, sums[i][j]);
        } else {
          Sum::store(y, sums[i][j], part);
        }
        continue;
      }
      V result = Kernel::finish(sums[i][j], args, i, j);
      if (args.bias != nullptr) result = V::add(result, bias);
      if (whole) {
        V::store(y, result);
      } else {
        V::store(y, result, part);
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
  /// Accumulators, weights and temporaries must fit the registers; a single row's weights need none.
  static constexpr size_t max_rows(size_t width) {
    const size_t free = Kernel::Vec::kRegisters - Kernel::kTemporaries;
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
  /// The narrowest whose rows suffice, or the narrowest of all.
  static constexpr size_t width_for(size_t m) {
    size_t width = 0;
    while (width + 1 < kWidths && max_rows(width) < m) ++width;
    return width;
  }
};

/// A stretch of K, weights for it, and where it stands in the sum.
template <class Kernel>
struct Chunk {
  const typename Kernel::Element* w;  // at the column and the first step
  size_t panel_elements;
  size_t step;
  size_t count;
  bool last;
};

/// All rows of x against one stretch of K of the vectors of one tile's width.
template <class Kernel>
void matmul_chunk(const MatmulArgs& args, const Tiles<Kernel>& tiles, size_t width, size_t column,
                  const Chunk<Kernel>& chunk) {
  const size_t max_rows = Tiles<Kernel>::max_rows(width);
  const size_t row_tiles = (args.m + max_rows - 1) / max_rows;
  for (size_t tile = 0; tile < row_tiles; ++tile) {  // of nearly the same height
    const size_t row = tile * args.m / row_tiles;
    const size_t rows = (tile + 1) * args.m / row_tiles - row;
    tiles.by_rows[width][rows](
        {.w = chunk.w,
         .panel_elements = chunk.panel_elements,
         .x = static_cast<const typename Kernel::X*>(args.x) + row * args.ldx + chunk.step * Kernel::kStepK,
         .ldx = args.ldx,
         .steps = chunk.count,
         .y = args.y + row * args.ldy + column,
         .ldy = args.ldy,
         .columns = args.n - column,
         .resume = chunk.step != 0,
         .last = chunk.last,
         .bias = args.bias != nullptr ? args.bias + column : nullptr,
         .x_scales = args.x_scales + row,
         .w_scales = args.w_scales + column,
         .offsets = args.offsets + column});
  }
}

/// Calls visit(width, column) for tiles that cover the panels.
template <class Kernel, class Visit>
inline __attribute__((always_inline)) void for_columns(const MatmulArgs& args, size_t first_panel,
                                                       size_t last_panel, const Visit& visit) {
  using T = Tiles<Kernel>;
  const size_t width = T::width_for(args.m);
  const size_t end = last_panel * kPanelWidth;
  size_t column = first_panel * kPanelWidth;
  while (column < end && column < args.n) {
    const size_t outputs = T::vectors(width) * Kernel::kLanes;
    const bool fits = column + outputs <= end;  // else two panels are asked for where one is left
    visit(fits ? width : 1, column);
    column += fits ? outputs : kPanelWidth;
  }
}

template <class Kernel>
void matmul(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  using T = Tiles<Kernel>;
  using Element = typename Kernel::Element;
  static constexpr T kTiles{};
  constexpr size_t kStepElements = kPanelWidth * Kernel::kStepK;
  const size_t steps = args.k / Kernel::kStepK;
  const size_t panel_elements = steps * kStepElements;
  for_columns<Kernel>(args, first_panel, last_panel, [&](size_t width, size_t column) {
    const Element* w = reinterpret_cast<const Element*>(args.panels) + column / kPanelWidth * panel_elements +
                       column % kPanelWidth * Kernel::kStepK;
    const size_t step_bytes = kStepElements * sizeof(Element) * (width == 0 ? 2 : 1);
    const size_t chunk = args.m <= T::max_rows(width) ? steps : kChunkBytes / step_bytes;
    size_t step = 0;
    do {
      const size_t count = steps - step < chunk ? steps - step : chunk;
      matmul_chunk<Kernel>(args, kTiles, width, column,
                           {w + step * kStepElements, panel_elements, step, count, step + count == steps});
      step += count;
    } while (step < steps);
  });
}

// Inputs that are expanded at a time: with few rows they stay in L1, with many each tile has enough to do.
inline constexpr size_t kInt4FewRows = 16;
inline constexpr size_t kInt4ChunkOfFew = 512;
inline constexpr size_t kInt4ChunkOfMany = 4096;

/// int4: a stretch of a panel, or of two, becomes int8 in the scratch memory; from there on as int8.
/// `Expand` turns a group into its eight steps.
template <class Kernel, class Expand>
void matmul_int4(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  static constexpr Tiles<Kernel> kTiles{};
  constexpr size_t kStepElements = kPanelWidth * Kernel::kStepK;
  constexpr size_t kGroup = 32;
  const size_t steps = args.k / Kernel::kStepK;
  const size_t chunk = (args.m <= kInt4FewRows ? kInt4ChunkOfFew : kInt4ChunkOfMany) / Kernel::kStepK;
  auto* expanded = reinterpret_cast<int8_t*>(args.scratch);
  const auto expand = [&](size_t panel, size_t step, size_t count, int8_t* to) {
    const std::byte* from =
        args.panels + panel * args.panel_bytes + step * Kernel::kStepK / kGroup * kInt4GroupBytes;
    for (size_t i = 0; i < count * Kernel::kStepK / kGroup; ++i) {
      Expand::group(from + i * kInt4GroupBytes, to + i * kGroup * kPanelWidth);
    }
  };
  const auto run = [&](size_t width, size_t panel) {
    const size_t panels = width == 0 ? 2 : 1;
    size_t step = 0;
    do {
      const size_t count = steps - step < chunk ? steps - step : chunk;
      for (size_t i = 0; i < panels; ++i)
        expand(panel + i, step, count, expanded + i * count * kStepElements);
      const size_t parts = width < 2 ? 1 : 2;  // the halves of a panel
      for (size_t part = 0; part < parts; ++part) {
        const size_t shift = part * kPanelWidth / 2;
        if (panel * kPanelWidth + shift >= args.n) break;
        matmul_chunk<Kernel>(
            args, kTiles, width, panel * kPanelWidth + shift,
            {expanded + shift * Kernel::kStepK, count * kStepElements, step, count, step + count == steps});
      }
      step += count;
    } while (step < steps);
  };
  const size_t width = Tiles<Kernel>::width_for(args.m);
  for (size_t panel = first_panel; panel < last_panel;) {
    const bool two = width == 0 && panel + 1 < last_panel;
    run(two ? 0 : width == 0 ? 1 : width, panel);
    panel += two ? 2 : 1;
  }
}

}  // namespace quire::cpu
