#include "kernels/cpu/x86/amx_tiles.h"
#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx512.h"

// Matmul with the tile registers of AMX: 16 rows x 64 bytes of activations times 64 bytes of K x 16 outputs,
// a tile of weights being 16 steps of half a panel as it lies. Each element adds its products in the order of
// K, whatever the tile's other rows are; a step of bf16 sums its even and its odd products apart, then adds
// both, subnormals being zero.
namespace quire::kernels::cpu::amx {
namespace {

using avx512::IntVec;
using avx512::Vec;

constexpr size_t kTileBytes = kTileRows * kTileRowBytes;
constexpr size_t kStepBytes = 2 * kTileBytes;  // of a panel: 16 rows of 128 bytes
constexpr size_t kRowStride = 128;
constexpr size_t kLanes = 16;

// Activations of so many bytes stay in L2 while the panels pass. More are cut: along K into so many steps,
// and into blocks of rows.
constexpr size_t kRowsBytes = 1 << 20;
constexpr size_t kChunkSteps = 64;

// Weights come from memory while the tiles of rows pass those before them. Of few pairs of tiles the first
// reads ahead, and the second asks for a part of the next panel. Of more, each asks for its share of it.
constexpr size_t kAhead = 1024;
constexpr size_t kFewPairs = 2;
constexpr size_t kLineBytes = 64;
constexpr size_t kStepLines = kStepBytes / kLineBytes;
constexpr size_t kLinesOfSecond = kStepLines / 2;

// Weights that come from memory push results of so many bytes out of the caches before they are read.
constexpr size_t kStreamedBytes = 256 << 10;

// Tile registers: 0..3 sums (rows of the first tile x left and right half of the panel, then the second
// tile's), 4 activations, 6 and 7 weights; 5 for the activations of a second tile with other rows. The fewer
// are in use the better: while the core's other hardware thread uses tiles too, there are few registers left
// to rename them to, and 8 in use take 22 ns a product where 7 take 15 (6 if the other thread does not). The
// intrinsics take numerals alone.

struct Bf16 {
  using Sum = Vec;
  static constexpr bool kScaled = false;
  static QUIRE_INLINE void first() {
    _tile_dpbf16ps(0, 4, 6);
    _tile_dpbf16ps(1, 4, 7);
  }
  static QUIRE_INLINE void second() {
    _tile_dpbf16ps(2, 4, 6);
    _tile_dpbf16ps(3, 4, 7);
  }
  static QUIRE_INLINE void shorter_second() {
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
};

struct Int8 {
  using Sum = IntVec;
  static constexpr bool kScaled = true;
  static QUIRE_INLINE void first() {
    _tile_dpbssd(0, 4, 6);
    _tile_dpbssd(1, 4, 7);
  }
  static QUIRE_INLINE void second() {
    _tile_dpbssd(2, 4, 6);
    _tile_dpbssd(3, 4, 7);
  }
  static QUIRE_INLINE void shorter_second() {
    _tile_dpbssd(2, 5, 6);
    _tile_dpbssd(3, 5, 7);
  }
};

/// The two row tiles that are computed together; the second may be empty.
struct Rows {
  size_t begin;
  size_t first;
  size_t second;
};

/// Tells the machine how many rows the tiles have, where that has changed.
class Shapes {
 public:
  Shapes() = default;
  Shapes(const Shapes&) = delete;
  Shapes& operator=(const Shapes&) = delete;
  ~Shapes() { _tile_release(); }

  void set(const Rows& rows) {
    if (rows.first == first_ && rows.second == second_) return;
    first_ = rows.first;
    second_ = rows.second;
    const size_t of_tile[8] = {first_, first_, second_, second_, first_, second_, kTileRows, kTileRows};
    TileConfig config;
    for (size_t i = 0; i < 8; ++i) {
      config.row_bytes[i] = of_tile[i] == 0 ? 0 : static_cast<uint16_t>(kTileRowBytes);
      config.rows[i] = static_cast<uint8_t>(of_tile[i]);
    }
    finish_writes();
    _tile_loadconfig(&config);
  }

 private:
  size_t first_ = 0;
  size_t second_ = 0;
};

/// Sums that are complete: they go to y row by row, while the tiles of the next pair are multiplied. The
/// vectors' instructions cost little time beside those of tiles, but all of it behind them.
template <class Dot>
class Results {
 public:
  /// `streams`: y is more than the caches keep until it is read, so that its lines need not come to them
  /// first. Whole vectors of it must be aligned then.
  Results(const MatmulArgs& args, bool streams) : args_(args), streams_(streams) {}
  Results(const Results&) = delete;
  Results& operator=(const Results&) = delete;
  ~Results() {
    write_all();
    if (streams_) _mm_sfence();
  }

  /// Room for the sums of a pair, [2 * kTileRows][kPanelWidth].
  float* room() { return sums_[current_ ^ 1U]; }
  /// The sums in the room are complete: their rows are written next, and the other room is free.
  void take(const Rows& rows, size_t column) {
    write_all();
    current_ ^= 1U;
    next_ = 0;
    count_ = rows.first + rows.second;
    row_ = rows.begin;
    column_ = column;
  }
  QUIRE_INLINE void write_one() {
    if (next_ == count_) return;
    const float* sums = sums_[current_] + next_ * kPanelWidth;
    write_half(sums, column_);
    if (column_ + kLanes < args_.n) write_half(sums + kLanes, column_ + kLanes);
    ++next_;
  }

 private:
  void write_all() {
    while (next_ < count_) write_one();
  }

  QUIRE_INLINE void write_half(const float* sums, size_t column) {
    const size_t row = row_ + next_;
    const size_t columns = args_.n - column;
    const bool whole = columns >= kLanes;
    Vec result = Vec::zero();
    if constexpr (Dot::kScaled) {
      const Vec sum = IntVec::to_float(IntVec::load(sums));
      result = Vec::mul(Vec::mul(sum, Vec::set1(args_.x_scales[row])), Vec::load(args_.w_scales + column));
    } else {
      result = Vec::load(sums);
    }
    if (args_.bias != nullptr) {
      const float* bias = args_.bias + column;
      result = Vec::add(result, whole ? Vec::load(bias) : Vec::load(bias, columns));
    }
    float* y = args_.y + row * args_.ldy + column;
    if (!whole) return Vec::store(y, result, columns);
    if (streams_) return Vec::stream(y, result);
    Vec::store(y, result);
  }

  const MatmulArgs& args_;
  const bool streams_;
  size_t next_ = 0;
  size_t count_ = 0;
  size_t row_ = 0;
  size_t column_ = 0;
  size_t current_ = 0;
  alignas(64) float sums_[2][2 * kTileRows * kPanelWidth];
};

/// A stretch of K of one panel: `w` at its first step.
struct Stretch {
  const std::byte* w;
  size_t step;
  size_t count;
  bool last;
  bool is_read;  // for the first time, from memory
  // Else, with each step so many lines are asked for of what is read later.
  const std::byte* ahead;
  size_t lines;
};

enum class Second { kNone, kSame, kShorter };

/// Reads whole lines, in their order. The machine then fetches those behind them by itself, sooner than after
/// prefetches.
template <size_t kLines>
QUIRE_INLINE void read_lines(const std::byte* from) {
  QUIRE_UNROLL
  for (size_t i = 0; i < kLines; ++i) {
#ifdef __AVX512F__
    asm volatile("" ::"v"(_mm512_load_si512(from + i * kLineBytes)));
#else  // without the instructions, whose vectors are other types then
    static_cast<void>(*static_cast<const volatile std::byte*>(from + i * kLineBytes));
#endif
  }
}

/// One step of K. Before the activations are loaded, so many lines of weights are read that are kAhead away:
/// the tiles' own loads, of every second line and few at a time, do not keep memory busy.
template <class Dot, Second kSecond, size_t kLines>
QUIRE_INLINE void multiply_step(const std::byte* x0, const std::byte* x1, const std::byte* w) {
  _tile_loadd(6, w, kRowStride);
  _tile_loadd(7, w + kTileRowBytes, kRowStride);
  read_lines<kLines>(w + kAhead);
  _tile_loadd(4, x0, kTileRowBytes);
  Dot::first();
  if constexpr (kSecond == Second::kSame) {
    _tile_loadd(4, x1, kTileRowBytes);
    Dot::second();
  } else if constexpr (kSecond == Second::kShorter) {
    _tile_loadd(5, x1, kTileRowBytes);
    Dot::shorter_second();
  }
}

template <class Dot, Second kSecond>
QUIRE_INLINE void multiply(const std::byte* x0, size_t stride0, const std::byte* x1, size_t stride1,
                           const Stretch& at, Results<Dot>& results) {
  const std::byte* w = at.w;
  const auto advance = [&] {
    w += kStepBytes;
    x0 += stride0;
    x1 += stride1;
  };
  if (at.is_read) {
    for (size_t step = 1; step < at.count; ++step, advance()) {
      results.write_one();
      multiply_step<Dot, kSecond, kStepLines>(x0, x1, w);
    }
    if (at.count == 0) return;
    results.write_one();
    return multiply_step<Dot, kSecond, kStepLines - kAhead / kLineBytes>(x0, x1, w);
  }
  const std::byte* ahead = at.ahead;
  for (size_t step = 0; step < at.count; ++step, advance()) {
    for (size_t i = 0; i < at.lines; ++i, ahead += kLineBytes) __builtin_prefetch(ahead, 0, 2);
    results.write_one();
    multiply_step<Dot, kSecond, 0>(x0, x1, w);
  }
}

/// One stretch of K of a panel against up to 32 rows. Between stretches the sums wait in y, so that a panel
/// that is cut must have all its outputs.
template <class Dot>
void multiply_block(const MatmulArgs& args, const Rows& rows, size_t column, const Stretch& at,
                    Results<Dot>& results) {
  const size_t row_bytes = args.k * kTileRowBytes / (Dot::kScaled ? 64 : 32);
  const auto* x = static_cast<const std::byte*>(args.x) + rows.begin * row_bytes;
  const size_t stride0 = rows.first * kTileRowBytes;
  const size_t stride1 = rows.second * kTileRowBytes;
  const std::byte* x1 = x + rows.first * row_bytes + at.step * stride1;
  float* y = args.y + rows.begin * args.ldy + column;
  float* y1 = y + rows.first * args.ldy;
  const size_t y_stride = args.ldy * sizeof(float);
  const bool two = rows.second != 0;
  finish_writes();
  if (at.step == 0) {
    _tile_zero(0);
    _tile_zero(1);
    if (two) {
      _tile_zero(2);
      _tile_zero(3);
    }
  } else {
    _tile_loadd(0, y, y_stride);
    _tile_loadd(1, y + kLanes, y_stride);
    if (two) {
      _tile_loadd(2, y1, y_stride);
      _tile_loadd(3, y1 + kLanes, y_stride);
    }
  }
  x += at.step * stride0;
  if (!two) {
    multiply<Dot, Second::kNone>(x, stride0, x, 0, at, results);
  } else if (rows.second == rows.first) {
    multiply<Dot, Second::kSame>(x, stride0, x1, stride1, at, results);
  } else {
    multiply<Dot, Second::kShorter>(x, stride0, x1, stride1, at, results);
  }
  float* to = at.last ? results.room() : y;
  float* to1 = at.last ? to + kTileRows * kPanelWidth : y1;
  const size_t stride = at.last ? kPanelWidth * sizeof(float) : y_stride;
  _tile_stored(0, to, stride);
  _tile_stored(1, to + kLanes, stride);
  if (two) {
    _tile_stored(2, to1, stride);
    _tile_stored(3, to1 + kLanes, stride);
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

/// Panels against a block of rows, K in chunks.
template <class Dot>
void matmul_rows(const MatmulArgs& args, size_t first_panel, size_t last_panel, size_t begin, size_t end,
                 size_t chunk, Shapes& shapes, Results<Dot>& results) {
  const size_t steps = args.k / (Dot::kScaled ? 64 : 32);
  const size_t pairs = (end - begin + 2 * kTileRows - 1) / (2 * kTileRows);
  const bool few = pairs <= kFewPairs;
  size_t step = 0;
  do {  // once even if K is 0
    const size_t count = steps - step < chunk ? steps - step : chunk;
    for (size_t panel = first_panel; panel < last_panel; ++panel) {
      const std::byte* w = args.panels + panel * args.panel_bytes + step * kStepBytes;
      Stretch at = {.w = w,
                    .step = step,
                    .count = count,
                    .last = step + count == steps,
                    .is_read = few,
                    .ahead = w + args.panel_bytes,
                    .lines = few ? kLinesOfSecond : (kStepLines + pairs - 1) / pairs};
      if (panel + 1 == last_panel) at.lines = 0;
      for_row_pairs(begin, end, shapes, [&](const Rows& rows) {
        multiply_block<Dot>(args, rows, panel * kPanelWidth, at, results);
        if (!few) at.ahead += at.lines * count * kLineBytes;
        at.is_read = false;
      });
    }
    step += count;
  } while (step < steps);
}

/// The results are not read before they have left the caches.
bool is_streamed(const MatmulArgs& args) {
  return args.m * args.n * sizeof(float) >= kStreamedBytes && args.ldy % kLanes == 0 &&
         reinterpret_cast<uintptr_t>(args.y) % kLineBytes == 0;
}

template <class Dot>
void matmul_tiles(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  Shapes shapes;
  const size_t steps = args.k / (Dot::kScaled ? 64 : 32);
  const bool cut = args.m > 2 * kTileRows && args.m * steps * kTileRowBytes > kRowsBytes;
  const size_t chunk = cut && steps > kChunkSteps ? kChunkSteps : steps;
  const size_t block =
      cut ? kRowsBytes / (chunk * kTileRowBytes) / (2 * kTileRows) * (2 * kTileRows) : args.m;
  Results<Dot> results(args, chunk == steps && is_streamed(args));
  // Between chunks the sums wait in y: a panel that has not all its outputs takes K at once.
  const size_t whole = args.n / kPanelWidth < last_panel ? args.n / kPanelWidth : last_panel;
  for (size_t begin = 0; begin < args.m; begin += block) {
    const size_t end = args.m - begin < block ? args.m : begin + block;
    if (first_panel < whole) {
      matmul_rows<Dot>(args, first_panel, whole, begin, end, chunk, shapes, results);
    }
    if (whole < last_panel) {
      matmul_rows<Dot>(args, whole > first_panel ? whole : first_panel, last_panel, begin, end, steps, shapes,
                       results);
    }
  }
}

// Fewer rows take less time without tiles, for which panels are expanded to bytes first.
constexpr size_t kLeastInt4Rows = 9;

// Steps that are expanded at a time: with few rows they stay in L1, with many each tile has enough to do.
constexpr size_t kInt4FewRows = 32;
constexpr size_t kInt4StepsOfFew = 8;
constexpr size_t kInt4StepsOfMany = 64;
constexpr size_t kInt4Prefetch = 2048;

void matmul_int4_tiles(const MatmulArgs& args, size_t first_panel, size_t last_panel) {
  Shapes shapes;
  Results<Int8> results(args, false);
  const size_t steps = args.k / 64;
  for (size_t panel = first_panel; panel < last_panel; ++panel) {
    const bool partial = (panel + 1) * kPanelWidth > args.n;
    const size_t few_or_many = args.m <= kInt4FewRows ? kInt4StepsOfFew : kInt4StepsOfMany;
    const size_t chunk = partial ? steps : few_or_many;
    size_t step = 0;
    do {
      const size_t count = steps - step < chunk ? steps - step : chunk;
      const std::byte* from = args.panels + panel * args.panel_bytes + step * 2 * kInt4GroupBytes;
      for (size_t i = 0; i < 2 * count; ++i) {
        for (size_t line = 0; line < kInt4GroupBytes; line += 64) {
          __builtin_prefetch(from + i * kInt4GroupBytes + kInt4Prefetch + line, 0, 2);
        }
        avx512::Int4::group(from + i * kInt4GroupBytes,
                            reinterpret_cast<int8_t*>(args.scratch) + i * kTileBytes);
      }
      for_row_pairs(0, args.m, shapes, [&](const Rows& rows) {
        multiply_block<Int8>(args, rows, panel * kPanelWidth,
                             {.w = args.scratch,
                              .step = step,
                              .count = count,
                              .last = step + count == steps,
                              .is_read = false,
                              .ahead = nullptr,
                              .lines = 0},
                             results);
      });
      step += count;
    } while (step < steps);
  }
}

}  // namespace

extern const MatmulKernel kBf16 = {matmul_tiles<Bf16>, RowForm::kBF16Tiles};
extern const MatmulKernel kInt8 = {matmul_tiles<Int8>, RowForm::kInt8Tiles};
extern const MatmulKernel kInt4 = {.run = matmul_int4_tiles,
                                   .rows = RowForm::kInt8Tiles,
                                   .least_rows = kLeastInt4Rows,
                                   .few = &avx512_vnni::kFewInt4};

}  // namespace quire::kernels::cpu::amx
