#include <type_traits>

#include "kernels/cpu/x86/amx_weights.h"
#include "kernels/cpu/x86/tables.h"

// Matmul with the tile registers of AMX: 16 rows x 64 bytes of activations times 64 bytes of K x 16 outputs,
// a tile of weights being 16 steps of half a panel as it lies. Each element adds its products in the order of
// K, whatever the tile's other rows are; a step of bf16 sums its even and its odd products apart, then adds
// both, subnormals being zero.
namespace quire::kernels::cpu::amx {
namespace {

// Steps that are multiplied without a branch, and steps of a panel that stay in L1.
constexpr size_t kGroup = 8;
constexpr size_t kNearSteps = 16;

constexpr size_t kTileFloats = kTileBytes / sizeof(float);
constexpr size_t kPairSums = 4 * kTileFloats;

// Weights that come from memory push results of so many bytes out of the caches before they are read.
constexpr size_t kStreamedBytes = 256 << 10;

enum class Second { kNone, kSame, kShorter };

/// One step of K. Before the activations are loaded, so many lines of weights are read that are kAhead away:
/// the tiles' own loads, of every second line and few at a time, do not keep memory busy.
template <class Dot, Second kSecond, size_t kLines>
QUIRE_INLINE void multiply_step(const std::byte* x0, const std::byte* x1, const std::byte* w) {
  _tile_loadd(6, w, kRowStride);
  _tile_loadd(7, w + kTileRowBytes, kRowStride);
  read_lines<kLines>(w + kAhead);
  _tile_loadd(4, x0, kTileRowBytes);
  Dot::first_left();
  Dot::first_right();
  if constexpr (kSecond == Second::kSame) {
    _tile_loadd(4, x1, kTileRowBytes);
    Dot::second_left();
    Dot::second_right();
  } else if constexpr (kSecond == Second::kShorter) {
    _tile_loadd(5, x1, kTileRowBytes);
    Dot::shorter_second();
  }
}

/// How often between the instructions of a step kAsks lines are asked for, each time.
constexpr size_t kPauses = 4;

/// What is asked for with each step, evenly.
template <size_t kAsks>
class Ahead {
 public:
  explicit Ahead(const Stretch& at)
      : from_(at.lines == 0 ? at.w : at.ahead), step_bytes_(at.bytes_of_step()) {
    for (size_t i = 0; i < kPauses * kAsks; ++i) offsets_[i] = at.offset(i * at.lines / (kPauses * kAsks));
  }
  QUIRE_INLINE void ask(size_t pause) const {
    QUIRE_UNROLL
    for (size_t i = 0; i < kAsks; ++i) __builtin_prefetch(from_ + offsets_[pause * kAsks + i], 0, 2);
  }
  QUIRE_INLINE void advance() { from_ += step_bytes_; }

 private:
  const std::byte* from_;
  size_t step_bytes_;
  size_t offsets_[kPauses * kAsks];
};

/// kGroup steps of two whole tiles. A core has few buffers for lines on their way, and who finds none waits:
/// what is asked for and what is written past the caches goes one by one between the tiles' instructions.
/// Activations do not go through L1, nor do the weights unless kNear, so that those which do stay there.
template <class Dot, size_t kAsks, Write kWrite, bool kNear>
QUIRE_INLINE void multiply_group(const std::byte* x0, const std::byte* x1, const std::byte* w,
                                 Ahead<kAsks>& ahead, Results<Dot>& results) {
  using Writer = std::conditional_t<kWrite == Write::kNone, NoWriter, typename Results<Dot>::Writer>;
  Writer rows(results, kGroup);
  QUIRE_UNROLL
  for (size_t i = 0; i < kGroup; ++i) {
    if constexpr (kNear) {
      _tile_loadd(6, w, kRowStride);
    } else {
      _tile_stream_loadd(6, w, kRowStride);
    }
    ahead.ask(0);
    rows.template write<kWrite>(0);
    if constexpr (kNear) {
      _tile_loadd(7, w + kTileRowBytes, kRowStride);
    } else {
      _tile_stream_loadd(7, w + kTileRowBytes, kRowStride);
    }
    ahead.ask(1);
    _tile_stream_loadd(4, x0, kTileRowBytes);
    Dot::first_left();
    ahead.ask(2);
    Dot::first_right();
    rows.template write<kWrite>(1);
    _tile_stream_loadd(4, x1, kTileRowBytes);
    Dot::second_left();
    ahead.ask(3);
    Dot::second_right();
    ahead.advance();
    w += kStepBytes;
    x0 += kTileBytes;
    x1 += kTileBytes;
  }
  // A tile that is stored more than 16 steps after the last one costs as much as 40 products.
  _tile_stored(6, results.dump(), kTileRowBytes);
}

/// As many groups as the stretch has; returns their steps.
template <class Dot, size_t kAsks>
__attribute__((noinline)) size_t multiply_groups(const std::byte* x0, const std::byte* x1, const Stretch& at,
                                                 Results<Dot>& results) {
  Ahead<kAsks> ahead(at);
  size_t step = 0;
  for (; step + kGroup <= at.count; step += kGroup) {
    const std::byte* w = at.w + step * kStepBytes;
    const auto group = [&]<Write kWrite>() __attribute__((always_inline)) {
      const std::byte* from0 = x0 + step * kTileBytes;
      const std::byte* from1 = x1 + step * kTileBytes;
      if (step < kNearSteps) {
        multiply_group<Dot, kAsks, kWrite, true>(from0, from1, w, ahead, results);
      } else {
        multiply_group<Dot, kAsks, kWrite, false>(from0, from1, w, ahead, results);
      }
    };
    switch (results.next_rows(kGroup)) {
      case Write::kNone:
        group.template operator()<Write::kNone>();
        break;
      case Write::kStore:
        group.template operator()<Write::kStore>();
        break;
      case Write::kStream:
        group.template operator()<Write::kStream>();
        break;
    }
  }
  return step;
}

/// Steps one by one. Not inlined: among other loops it has too few registers, and is 3 % slower.
template <class Dot, Second kSecond>
__attribute__((noinline)) void multiply_steps(const std::byte* x0, size_t stride0, const std::byte* x1,
                                              size_t stride1, const Stretch at, Results<Dot>& results) {
  const std::byte* w = at.w;
  const std::byte* ahead = at.ahead;
  for (size_t step = 0; step < at.count; ++step) {
    for (size_t i = 0; i < at.lines; ++i) __builtin_prefetch(ahead + at.offset(i), 0, 2);
    ahead += at.bytes_of_step();
    results.write_one();
    multiply_step<Dot, kSecond, 0>(x0, x1, w);
    w += kStepBytes;
    x0 += stride0;
    x1 += stride1;
  }
}

template <class Dot, Second kSecond>
QUIRE_INLINE void multiply(const std::byte* x0, size_t stride0, const std::byte* x1, size_t stride1,
                           const Stretch& at, Results<Dot>& results) {
  if (at.is_read) {
    const std::byte* w = at.w;
    for (size_t step = 1; step < at.count; ++step) {
      results.write_one();
      multiply_step<Dot, kSecond, kStepLines>(x0, x1, w);
      w += kStepBytes;
      x0 += stride0;
      x1 += stride1;
    }
    if (at.count == 0) return;
    results.write_one();
    return multiply_step<Dot, kSecond, kStepLines - kAhead / kLineBytes>(x0, x1, w);
  }
  size_t step = 0;
  if constexpr (kSecond == Second::kSame) {
    if (at.lines <= kPauses) {
      step = multiply_groups<Dot, 1>(x0, x1, at, results);
    } else if (at.lines <= 2 * kPauses) {
      step = multiply_groups<Dot, 2>(x0, x1, at, results);
    } else {
      step = multiply_groups<Dot, 4>(x0, x1, at, results);
    }
  }
  if (step == at.count) return;
  Stretch rest = at;
  rest.w += step * kStepBytes;
  rest.count -= step;
  rest.ahead += step * at.bytes_of_step();
  multiply_steps<Dot, kSecond>(x0 + step * stride0, stride0, x1 + step * stride1, stride1, rest, results);
}

/// The sums of a second tile of rows, or of a second panel.
void store_second_sums(float* to, size_t stride, size_t right) {
  _tile_stored(2, to, stride);
  _tile_stored(3, to + right, stride);
}

/// Four tiles of sums: to where they wait, or from there.
void store_sums(float* to, size_t stride, size_t right, size_t second, bool two) {
  _tile_stored(0, to, stride);
  _tile_stored(1, to + right, stride);
  if (two) store_second_sums(to + second, stride, right);
}

void load_sums(const float* from, bool two) {
  _tile_loadd(0, from, kTileRowBytes);
  _tile_loadd(1, from + kTileFloats, kTileRowBytes);
  if (!two) return;
  _tile_loadd(2, from + 2 * kTileFloats, kTileRowBytes);
  _tile_loadd(3, from + 3 * kTileFloats, kTileRowBytes);
}

void zero_sums(bool two) {
  _tile_zero(0);
  _tile_zero(1);
  if (!two) return;
  _tile_zero(2);
  _tile_zero(3);
}

/// One stretch of K of a panel against up to 32 rows.
template <class Dot>
void multiply_block(const MatmulArgs& args, const Rows& rows, size_t column, const Stretch& at,
                    Results<Dot>& results) {
  const size_t row_bytes = steps_of<Dot>(args.k) * kTileRowBytes;
  const size_t stride0 = rows.first * kTileRowBytes;
  const size_t stride1 = rows.second * kTileRowBytes;
  const auto* x = static_cast<const std::byte*>(args.x) + rows.begin * row_bytes;
  const std::byte* x1 = x + rows.first * row_bytes + at.step * stride1;
  x += at.step * stride0;
  const bool two = rows.second != 0;
  finish_writes();
  if (at.step == 0) {
    zero_sums(two);
  } else {
    load_sums(at.sums, two);
  }
  if (!two) {
    multiply<Dot, Second::kNone>(x, stride0, x, 0, at, results);
  } else if (rows.second == rows.first) {
    multiply<Dot, Second::kSame>(x, stride0, x1, stride1, at, results);
  } else {
    multiply<Dot, Second::kShorter>(x, stride0, x1, stride1, at, results);
  }
  if (at.last) {
    store_sums(results.room(), kPanelWidth * sizeof(float), kLanes, kTileRows * kPanelWidth, two);
  } else {
    store_sums(at.sums, kTileRowBytes, kTileFloats, 2 * kTileFloats, two);
  }
  finish_writes();
  if (at.last) results.take(rows, column);
}

/// Calls visit(rows) for pairs of row tiles that cover the rows [begin, end).
template <class Visit>
QUIRE_INLINE void for_row_pairs(size_t begin, size_t end, Shapes& shapes, const Visit& visit) {
  for (size_t row = begin; row < end; row += 2 * kTileRows) {
    const size_t left = end - row;
    const size_t first = left < kTileRows ? left : kTileRows;
    const size_t rest = left - first;
    const Rows rows = {row, first, rest < kTileRows ? rest : kTileRows};
    shapes.set(rows);
    visit(rows);
  }
}

/// One step of K for one tile of rows and two panels. As in multiply_step(), lines are read that are kAhead
/// away; the activations, which both need, are loaded before.
template <class Dot, size_t kLines>
QUIRE_INLINE void multiply_two(const std::byte* x, const std::byte* w, const std::byte* next) {
  _tile_loadd(4, x, kTileRowBytes);
  _tile_loadd(6, w, kRowStride);
  _tile_loadd(7, w + kTileRowBytes, kRowStride);
  read_lines<kLines>(w + kAhead);
  Dot::first_left();
  Dot::first_right();
  _tile_loadd(6, next, kRowStride);
  _tile_loadd(7, next + kTileRowBytes, kRowStride);
  read_lines<kLines>(next + kAhead);
  Dot::second_left();
  Dot::second_right();
}

/// `panel` and the one behind it against all rows, which are one tile. The panels are read from memory side
/// by side, and the rows once for both, which takes 0.90 (int8) to 0.95 (bf16) of the time of one panel after
/// the other. Results of the first are written at once where those of the second are complete. REQUIRES: K is
/// not 0.
template <class Dot>
__attribute__((noinline)) void multiply_two_panels(const MatmulArgs& args, size_t panel,
                                                   Results<Dot>& results) {
  const Rows rows = {0, args.m, 0};
  const size_t stride = args.m * kTileRowBytes;
  const auto* x = static_cast<const std::byte*>(args.x);
  const std::byte* w = args.panels + panel * args.panel_bytes;
  const std::byte* next = w + args.panel_bytes;
  finish_writes();
  zero_sums(true);
  for (size_t left = steps_of<Dot>(args.k); left > 1; --left) {
    results.write_one();
    multiply_two<Dot, kStepLines>(x, w, next);
    x += stride;
    w += kStepBytes;
    next += kStepBytes;
  }
  results.write_one();
  multiply_two<Dot, kStepLines - kAhead / kLineBytes>(x, w, next);
  store_sums(results.room(), kPanelWidth * sizeof(float), kLanes, 0, false);
  finish_writes();
  results.take(rows, panel * kPanelWidth);
  store_second_sums(results.room(), kPanelWidth * sizeof(float), kLanes);
  finish_writes();
  results.take(rows, (panel + 1) * kPanelWidth);
}

/// Panels [first, last) against the rows [begin, end).
template <class Dot, class Weights>
void matmul_rows(const MatmulArgs& args, size_t first, size_t last, size_t begin, size_t end,
                 const TileBlocks& blocks, Shapes& shapes, Results<Dot>& results) {
  const size_t steps = steps_of<Dot>(args.k);
  const size_t pairs = tile_pairs(end - begin);
  Weights weights(args, pairs);
  const size_t sums_of_panel = blocks.steps < steps ? pairs * kPairSums : 0;
  const auto place = [&](size_t panel, size_t step) {
    return args.panels + panel * args.panel_bytes + step * kStepBytes;
  };
  size_t step = 0;
  do {  // once even if K is 0
    const size_t chunk_end = smaller(steps, step + blocks.steps);
    for (size_t panel = first; panel < last; ++panel) {
      Stretch at = {.step = step};
      do {
        at.count = weights.chunk(chunk_end - at.step);
        at.last = at.step + at.count == steps;
        const std::byte* next = at.step + at.count < chunk_end       ? place(panel, at.step + at.count)
                                : panel + 1 < last                   ? place(panel + 1, step)
                                : chunk_end < steps                  ? place(first, chunk_end)
                                : end < args.m                       ? place(first, 0)
                                : (panel + 1) * kPanelWidth < args.n ? place(panel + 1, 0)
                                                                     : nullptr;
        at.sums = args.sums + (panel - first) * sums_of_panel;
        weights.prepare(panel, next, at);
        for_row_pairs(begin, end, shapes, [&](const Rows& rows) {
          multiply_block<Dot>(args, rows, panel * kPanelWidth, at, results);
          weights.proceed(at);
          at.sums += kPairSums;
        });
        at.step += at.count;
      } while (at.step < chunk_end);
    }
    step = chunk_end;
  } while (step < steps);
}

/// The results are not read before they have left the caches.
bool is_streamed(const MatmulArgs& args) {
  return args.m * args.n * sizeof(float) >= kStreamedBytes && args.ldy % kLanes == 0 &&
         reinterpret_cast<uintptr_t>(args.y) % kLineBytes == 0;
}

template <class Dot, class Weights>
void matmul_tiles(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  Shapes shapes;
  Results<Dot> results(args, is_streamed(args));
  const TileBlocks blocks = tile_blocks(args.m, steps_of<Dot>(args.k));
  if (Weights::kInMemory && args.m <= kTileRows && args.k > 0) {
    shapes.set({0, args.m, args.m});
    for (; first_panel + 2 <= last_panel; first_panel += 2) multiply_two_panels(args, first_panel, results);
  }
  for (size_t first = first_panel; first < last_panel; first += args.waiting_panels) {
    const size_t last = smaller(last_panel, first + args.waiting_panels);
    for (size_t begin = 0; begin < args.m; begin += blocks.rows) {
      const size_t end = smaller(args.m, begin + blocks.rows);
      matmul_rows<Dot, Weights>(args, first, last, begin, end, blocks, shapes, results);
    }
  }
}

// Fewer rows take less time without tiles, for which panels are expanded to bytes first.
constexpr size_t kLeastInt4Rows = 9;

}  // namespace

extern const MatmulKernel kBf16 = {matmul_tiles<Bf16, Stored>, RowForm::kBF16Tiles};
extern const MatmulKernel kInt8 = {matmul_tiles<Int8, Stored>, RowForm::kInt8Tiles};
extern const MatmulKernel kInt4 = {.run = matmul_tiles<Int8, Expanded>,
                                   .rows = RowForm::kInt8Tiles,
                                   .least_rows = kLeastInt4Rows,
                                   .few = &avx512_vnni::kFewInt4};

}  // namespace quire::kernels::cpu::amx
