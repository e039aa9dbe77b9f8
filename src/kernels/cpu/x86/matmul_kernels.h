#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/kernel_table.h"
#include "kernels/cpu/x86/unroll.h"
#include "kernels/cpu/x86/vec.h"

// Matmul over packed panels: register tiles of rows x vectors of outputs, K in sequence for every lane. If K
// is divided into chunks, the accumulators are stored exactly in y between them; so a result depends neither
// on the shape of the tile nor on the chunk. While several tiles of rows are multiplied with a chunk of
// weights, which is in L2 after the first tile, each tile prefetches a part of the next chunk, so that memory
// is read all the time (Goto and van de Geijn 2008 keep operands this way; the interleaved rows are their
// packed A).
//
// A `Kernel` defines one step along K:
//   Vec, kLanes         the results, f32
//   Sum                 an accumulator of as many lanes: zero, load and store in y, as they are
//   Element, kStepK     what a panel holds; consecutive k per step (a lane's kStepK elements are adjacent)
//   X                   what the activations are
//   kParts              how many parts a step is taken in, one after another
//   kTemporaries        registers that it needs besides accumulators and a row's width of weights
//   load, broadcast     of one part: kLanes lanes of weights; activations in all lanes
//   multiply_add        accumulator + weights * activations
//   finish              the result of row i, vector j of the tile
namespace quire::kernels::cpu {

// The prefetch distance of a tile, over its panels, if no tiles share the next chunk: enough to cover the
// memory latency.
inline constexpr size_t kPrefetchBytes = 8192;
// The chunk size of a panel: with the activations of a tile and the next chunk, it stays in L2 for all tiles
// of rows.
inline constexpr size_t kChunkBytes = 256 * 1024;
// Of a matmul of two tiles of 16 lanes, which pass it so soon that memory is the limit: it stays closer.
inline constexpr size_t kChunkBytesOfTwo = 64 * 1024;
// The bytes of the rows that are multiplied together: they are read once per panel, from L2 if a piece has
// several panels.
inline constexpr size_t kRowsBytes = 512 * 1024;
inline constexpr size_t kRowsPrefetch = 2048;  // prefetch distance in the rows, in bytes

/// One chunk of K of one tile.
template <class Kernel>
struct TileArgs {
  const typename Kernel::Element* w;  // the tile's first vector at the chunk's first step
  size_t panel_elements;              // from one panel to the next
  const typename Kernel::X* x;        // its interleaved rows, see MatmulKernel
  const char* ahead;                  // what to prefetch meanwhile ...
  size_t ahead_step;                  // ... and its advance per step, in bytes
  size_t steps;
  float* y;
  size_t ldy;
  size_t columns;  // columns of y from the tile's first on
  bool resume;     // start from the accumulators in y, not from zero
  bool last;       // store the result in y, not the accumulators
  // At the tile's first column or row; see MatmulArgs.
  const float* bias;
  const float* x_scales;
  const float* w_scales;
  const int32_t* offsets;
};

/// f32 and f16 weights.
template <VecType V, class Format>
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
template <VecType V, class Pairs>
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

/// int8 weights and activations. `Dot` defines how four products are added to each integer lane, and the type
/// of the activations.
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

/// Stores a tile in y: the results, or the accumulators if K continues.
template <class Kernel, size_t kRows, size_t kVectors>
inline __attribute__((always_inline)) void store_tile(const TileArgs<Kernel>& shared,
                                                      const typename Kernel::Sum (&sums)[kRows][kVectors]) {
  using V = typename Kernel::Vec;
  using Sum = typename Kernel::Sum;
  constexpr size_t kLanes = Kernel::kLanes;
  const TileArgs<Kernel> args =
      shared;  // a copy, because y might alias it: then every store would force a reload
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

/// kRows rows x kVectors vectors of outputs, kept in registers for the whole chunk.
template <class Kernel, size_t kRows, size_t kVectors>
void matmul_tile(const TileArgs<Kernel>& args) {
  using Sum = typename Kernel::Sum;
  constexpr size_t kLanes = Kernel::kLanes;
  constexpr size_t kVectorElements = kLanes * Kernel::kStepK;
  constexpr size_t kStepElements = kPanelWidth * Kernel::kStepK;
  constexpr size_t kPanelVectors = kPanelWidth / kLanes;
  constexpr size_t kVectorBytes = kVectorElements * sizeof(typename Kernel::Element);
  // Weights are prefetched into L2 (2): in L1 they would displace rows, and wait for its few buffers. A
  // single row of narrow vectors, which does little else than load, takes them from L1 (3).
  constexpr int kCache = kRows > 1 || kLanes >= 16 ? 2 : 3;

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
  const char* ahead = args.ahead;
  size_t step = 0;
  const float* y = args.y;
  for (size_t row = 1; row <= kRows; ++row, y += args.ldy) {
    // The cache lines of the results must be read before they are written: those of one row with each part of
    // the steps.
    if (kRows > 1) {
      QUIRE_UNROLL
      for (size_t line = 0; line < kVectors * kLanes; line += 64 / sizeof(float)) {
        __builtin_prefetch(y + line, 1);
      }
    }
    const size_t end = row * args.steps / kRows;
    for (; step < end; ++step) {
      if (kRows > 1) __builtin_prefetch(reinterpret_cast<const char*>(x) + kRowsPrefetch);
      QUIRE_UNROLL
      for (size_t part = 0; part < Kernel::kParts; ++part) {
        decltype(Kernel::load(w, part)) weights[kVectors];
        QUIRE_UNROLL
        for (size_t j = 0; j < kVectors; ++j) {
          const size_t shift =
              (j / kPanelVectors) * args.panel_elements + (j % kPanelVectors) * kVectorElements;
          weights[j] = Kernel::load(w + shift, part);
          if (part == 0 && j * kVectorBytes % 64 == 0) {
            __builtin_prefetch(ahead + shift * sizeof(typename Kernel::Element), 0, kCache);
          }
        }
        QUIRE_UNROLL
        for (size_t i = 0; i < kRows; ++i) {
          const auto factor = Kernel::broadcast(x + i * Kernel::kStepK, part);
          QUIRE_UNROLL
          for (size_t j = 0; j < kVectors; ++j) {
            sums[i][j] = Kernel::multiply_add(sums[i][j], weights[j], factor);
          }
        }
      }
      w += kStepElements;
      x += kRows * Kernel::kStepK;
      ahead += args.ahead_step;
    }
  }

  store_tile<Kernel, kRows, kVectors>(args, sums);
}

/// The tile functions of a kernel by width and rows. Width 0 is two panels side by side (for few rows: more
/// weights in flight), 1 one panel, 2 half of one.
template <class Kernel>
struct Tiles {
  using Tile = void (*)(const TileArgs<Kernel>&);
  static constexpr size_t kPanelVectors = kPanelWidth / Kernel::kLanes;
  static constexpr size_t kWidths = kPanelVectors >= 4 ? 3 : 2;
  static constexpr size_t vectors(size_t width) { return 2 * kPanelVectors >> width; }
  /// Accumulators, weights and temporaries must fit into the registers; the weights for a single row need
  /// none.
  static constexpr size_t max_rows(size_t width) {
    const size_t free = Kernel::Vec::kRegisters - Kernel::kTemporaries;
    return free < 3 * vectors(width) ? 1 : free / vectors(width) - 1;
  }
  static constexpr size_t kMaxRows = max_rows(kWidths - 1);
  static_assert(kMaxRows <= kMostInterleavedRows);

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
  /// The widest width whose tiles hold m rows, or the narrowest of all.
  static constexpr size_t width_for(size_t m) {
    size_t width = 0;
    while (width + 1 < kWidths && max_rows(width) < m) ++width;
    return width;
  }
  static constexpr size_t row_tiles(size_t m) {
    const size_t most = max_rows(width_for(m));
    return (m + most - 1) / most;
  }
};

/// A stretch of K, its weights, and its place in the sum.
template <class Kernel>
struct Chunk {
  const typename Kernel::Element* w;  // at the column and the first step
  size_t panel_elements;
  size_t step;
  size_t count;
  bool last;
  const char* next = nullptr;  // the beginning of the next chunk's memory ...
  size_t next_bytes = 0;       // ... and its size
  size_t first_tile = 0;       // index of the first, and the number, of the tiles of rows
  size_t tiles = 1;
};

/// A tile of rows with one stretch of K, for the vectors of one tile's width.
template <class Kernel>
void multiply_tile(const MatmulArgs& args, const Tiles<Kernel>& tiles, size_t width, size_t column,
                   size_t tile, const Chunk<Kernel>& chunk) {
  constexpr size_t kStepBytes = kPanelWidth * Kernel::kStepK * sizeof(typename Kernel::Element);
  const size_t row_tiles = Tiles<Kernel>::row_tiles(args.m);
  const size_t row = first_row(tile, row_tiles, args.m);
  const size_t rows = first_row(tile + 1, row_tiles, args.m) - row;
  const char* ahead = reinterpret_cast<const char*>(chunk.w);
  size_t ahead_step = kStepBytes;
  if (chunk.next != nullptr) {  // each tile takes its share, perhaps a few lines more
    const size_t steps = chunk.count * chunk.tiles;
    ahead = chunk.next + (tile - chunk.first_tile) * chunk.next_bytes / chunk.tiles;
    ahead_step = steps == 0 ? 0 : (chunk.next_bytes + steps - 1) / steps;
  } else if (chunk.count > 0) {
    ahead += kPrefetchBytes / (width == 0 ? 2 : 1);
  }
  tiles.by_rows[width][rows]({.w = chunk.w,
                              .panel_elements = chunk.panel_elements,
                              .x = static_cast<const typename Kernel::X*>(args.x) + row * args.ldx +
                                   chunk.step * Kernel::kStepK * rows,
                              .ahead = ahead,
                              .ahead_step = ahead_step,
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

/// The weights of the outputs from `column` on, from a step on.
template <class Kernel>
const typename Kernel::Element* panel_at(const MatmulArgs& args, size_t column, size_t step) {
  const auto* panel = reinterpret_cast<const typename Kernel::Element*>(args.panels + column / kPanelWidth *
                                                                                          args.panel_bytes);
  return panel + (step * kPanelWidth + column % kPanelWidth) * Kernel::kStepK;
}

/// One tile of rows, with all of K at once.
template <class Kernel>
void matmul_few_rows(const MatmulArgs& args, const Tiles<Kernel>& tiles, size_t first_panel,
                     size_t last_panel) {
  using T = Tiles<Kernel>;
  const size_t widest = T::width_for(args.m);
  const size_t end = last_panel * kPanelWidth;
  const size_t steps = args.k / Kernel::kStepK;
  size_t column = first_panel * kPanelWidth;
  while (column < end && column < args.n) {
    const bool fits = column + T::vectors(widest) * Kernel::kLanes <= end;
    const size_t width = fits ? widest : 1;  // width 0 needs two panels, but one is left
    multiply_tile<Kernel>(args, tiles, width, column, 0,
                          {.w = panel_at<Kernel>(args, column, 0),
                           .panel_elements = args.panel_bytes / sizeof(typename Kernel::Element),
                           .step = 0,
                           .count = steps,
                           .last = true});
    column += T::vectors(width) * Kernel::kLanes;
  }
}

/// The tiles of rows [first_tile, last_tile) with the outputs from `column` on, with K in chunks. The outputs
/// from `next_column` on follow.
template <class Kernel>
void matmul_column(const MatmulArgs& args, const Tiles<Kernel>& tiles, size_t width, size_t column,
                   size_t next_column, size_t first_tile, size_t last_tile) {
  constexpr size_t kStepBytes = kPanelWidth * Kernel::kStepK * sizeof(typename Kernel::Element);
  const size_t steps = args.k / Kernel::kStepK;
  const bool are_two = Kernel::kLanes >= 16 && Tiles<Kernel>::row_tiles(args.m) <= 2;
  const size_t most = (are_two ? kChunkBytesOfTwo : kChunkBytes) / kStepBytes;
  // Of nearly the same size, for each fetches as much of the next one as it has itself.
  const size_t chunks = steps == 0 ? 1 : (steps + most - 1) / most;
  for (size_t index = 0; index < chunks; ++index) {  // runs once even if K is 0
    const size_t step = index * steps / chunks;
    const size_t count = (index + 1) * steps / chunks - step;
    const bool last = index + 1 == chunks;
    const typename Kernel::Element* next =
        last ? panel_at<Kernel>(args, next_column, 0) : panel_at<Kernel>(args, column, step + count);
    const Chunk<Kernel> chunk = {.w = panel_at<Kernel>(args, column, step),
                                 .panel_elements = 0,  // the tile is not wider than one panel
                                 .step = step,
                                 .count = count,
                                 .last = last,
                                 .next = reinterpret_cast<const char*>(next),
                                 .next_bytes = count * kStepBytes,
                                 .first_tile = first_tile,
                                 .tiles = last_tile - first_tile};
    for (size_t tile = first_tile; tile < last_tile; ++tile) {
      multiply_tile<Kernel>(args, tiles, width, column, tile, chunk);
    }
  }
}

/// Several tiles of rows.
template <class Kernel>
void matmul_many_rows(const MatmulArgs& args, const Tiles<Kernel>& tiles, size_t first_panel,
                      size_t last_panel) {
  using T = Tiles<Kernel>;
  const size_t width = T::width_for(args.m);
  const size_t outputs = T::vectors(width) * Kernel::kLanes;
  const size_t begin = first_panel * kPanelWidth;
  const size_t end = last_panel * kPanelWidth < args.n ? last_panel * kPanelWidth : args.n;
  const size_t row_tiles = T::row_tiles(args.m);
  const size_t blocks = args.m * args.ldx * sizeof(typename Kernel::X) / kRowsBytes + 1;
  for (size_t block = 0; block < blocks; ++block) {
    const size_t first_tile = first_row(block, blocks, row_tiles);
    const size_t last_tile = first_row(block + 1, blocks, row_tiles);
    if (first_tile == last_tile) continue;
    for (size_t column = begin; column < end; column += outputs) {
      const bool again = column + outputs >= end && block + 1 < blocks;
      const size_t next_column = again ? begin : column + outputs;
      matmul_column<Kernel>(args, tiles, width, column, next_column, first_tile, last_tile);
    }
  }
}

template <class Kernel>
void matmul(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  static constexpr Tiles<Kernel> kTiles{};
  if (Tiles<Kernel>::row_tiles(args.m) == 1) {
    matmul_few_rows<Kernel>(args, kTiles, first_panel, last_panel);
  } else {
    matmul_many_rows<Kernel>(args, kTiles, first_panel, last_panel);
  }
}

template <class Kernel>
constexpr MatmulKernel matmul_kernel(RowForm rows) {
  return {matmul<Kernel>, rows, Tiles<Kernel>::row_tiles};
}

}  // namespace quire::kernels::cpu
