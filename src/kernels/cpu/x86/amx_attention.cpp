#include "kernels/cpu/x86/amx_attention_rows.h"
#include "kernels/cpu/x86/amx_tiles.h"
#include "kernels/cpu/x86/attention_integers.h"
#include "kernels/cpu/x86/attention_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx512.h"
#include "kernels/cpu/x86/vnni_avx512.h"

// Attention with the tile registers of AMX, 16 query rows at a time: queries and weights are rounded to bf16,
// as DotPairs of avx512_bf16.cpp does, and each element adds the products of 32 or 16 dimensions, or of 32
// keys, at a time, in their order. Of int8, queries are multiplied as in attention_integers.h. Rows of a tile
// that are not asked for are computed from whatever lies behind the others; the scratch memory has room for
// them, and nobody reads their results.
namespace quire::kernels::cpu::amx {
namespace {

constexpr size_t kHalfRows = 8;            // pairs of 16 dimensions
constexpr size_t kFours = 4;               // fours of 16 dimensions
constexpr size_t kPairBytes = 64;          // of 16 lanes
constexpr size_t kPairs = kPairBytes / 2;  // elements of them

// Tile registers: 0..3 sums; 4 and 5 factors and pairs of 32 dimensions or keys, or fours of 64 dimensions; 6
// and 7 the same of 16 dimensions, which fill `rows_of_16` rows.
class Registers {
 public:
  explicit Registers(size_t rows_of_16) {
    TileConfig config;
    for (size_t i = 0; i < 8; ++i) {
      config.row_bytes[i] = i == 6 ? static_cast<uint16_t>(rows_of_16 * sizeof(float)) : kTileRowBytes;
      config.rows[i] = i == 7 ? static_cast<uint8_t>(rows_of_16) : kTileRows;
    }
    finish_writes();
    _tile_loadconfig(&config);
  }
  Registers(const Registers&) = delete;
  Registers& operator=(const Registers&) = delete;
  ~Registers() { _tile_release(); }
};

struct PairsOfKeys {
  using KeyElement = uint16_t;
  static constexpr bool kIntegerKeys = false;
};
/// bf16 in pairs, or what values of int8 were widened to.
template <bool kScales>
struct Pairs : std::conditional_t<kScales, IntegerKeys<Vec>, PairsOfKeys> {
  using Stored = StoredPairs;
  using Element = uint16_t;
  using Wide = void;
  static constexpr bool kScaled = kScales;
  static constexpr size_t kStep = 2;
  static constexpr size_t kLane = 2;
  static constexpr float kSlack = 5.0F;  // e^5 times a value must be finite
  static constexpr bool kKeepsTwo = true;
  static QUIRE_INLINE Vec exp(Vec x) { return vec_exp_by_table(x); }
  static QUIRE_INLINE Vec keep(float* numbers, size_t first, Vec values) {
    const auto rounded = (__m256i)_mm512_cvtneps_pbh(values.v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<uint16_t*>(numbers) + first), rounded);
    return avx512::Bf16::widen(rounded);
  }
  static QUIRE_INLINE Vec keep_two(float* numbers, size_t first, Vec a, Vec b) {
    const auto rounded = (__m512i)_mm512_cvtne2ps_pbh(b.v, a.v);
    _mm512_storeu_si512(reinterpret_cast<uint16_t*>(numbers) + first, rounded);
    const __m512i odd = _mm512_and_si512(rounded, _mm512_set1_epi32(static_cast<int>(0xffff0000U)));
    return Vec::add({_mm512_castsi512_ps(_mm512_slli_epi32(rounded, 16))}, {_mm512_castsi512_ps(odd)});
  }
};

/// int8, of which each integer is a bf16 exactly.
struct Bytes : IntegerKeys<Vec> {
  using Stored = StoredBytes;
  using Element = int8_t;
  using Wide = Pairs<true>;
  static constexpr bool kScaled = true;
  static constexpr size_t kStep = 2;
  static constexpr size_t kLane = 1;
  static constexpr size_t kWidenRows = kFewRows + 1;
  static constexpr float kSlack = Wide::kSlack;
  static constexpr bool kKeepsTwo = Wide::kKeepsTwo;
  static QUIRE_INLINE Vec exp(Vec x) { return Wide::exp(x); }
  static QUIRE_INLINE Vec keep(float* numbers, size_t first, Vec values) {
    return Wide::keep(numbers, first, values);
  }
  static QUIRE_INLINE Vec keep_two(float* numbers, size_t first, Vec a, Vec b) {
    return Wide::keep_two(numbers, first, a, b);
  }
  static QUIRE_INLINE void widen(const int8_t* from, uint16_t* to, size_t width, size_t lanes) {
    if (lanes == 0) {
      _mm512_storeu_si512(to, avx512::I8::bf16_pairs(avx512::I8::load(from), avx512::I8::load(from + width)));
    } else {
      const Vec second = avx512::I8::load(from + width, lanes);
      const __m512i pairs = avx512::I8::bf16_pairs(avx512::I8::load(from, lanes), second);
      _mm512_mask_storeu_epi32(to, Vec::mask(lanes), pairs);
    }
  }
};

// The products of one tile of factors with a tile of keys each, or with 16 dimensions of values each, `apart`
// from another. The intrinsics take numerals alone.
QUIRE_INLINE void zero_sums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}
QUIRE_INLINE void store_sums(float* to, size_t stride, size_t count) {
  _tile_stored(0, to, stride);
  if (count > 1) _tile_stored(1, to + kTileKeys, stride);
  if (count > 2) _tile_stored(2, to + 2 * kTileKeys, stride);
  if (count > 3) _tile_stored(3, to + 3 * kTileKeys, stride);
}
QUIRE_INLINE void load_sums(const float* from, size_t stride, size_t count) {
  _tile_loadd(0, from, stride);
  if (count > 1) _tile_loadd(1, from + kTileKeys, stride);
  if (count > 2) _tile_loadd(2, from + 2 * kTileKeys, stride);
  if (count > 3) _tile_loadd(3, from + 3 * kTileKeys, stride);
}
QUIRE_INLINE void multiply_keys_32(const uint16_t* const (&pairs)[kStretchTiles], size_t shift) {
  _tile_loadd(5, pairs[0] + shift, kPairBytes);
  _tile_dpbf16ps(0, 4, 5);
  _tile_loadd(5, pairs[1] + shift, kPairBytes);
  _tile_dpbf16ps(1, 4, 5);
  _tile_loadd(5, pairs[2] + shift, kPairBytes);
  _tile_dpbf16ps(2, 4, 5);
  _tile_loadd(5, pairs[3] + shift, kPairBytes);
  _tile_dpbf16ps(3, 4, 5);
}
QUIRE_INLINE void multiply_keys_16(const uint16_t* const (&keys)[kStretchTiles], size_t shift) {
  _tile_loadd(7, keys[0] + shift, kPairBytes);
  _tile_dpbf16ps(0, 6, 7);
  _tile_loadd(7, keys[1] + shift, kPairBytes);
  _tile_dpbf16ps(1, 6, 7);
  _tile_loadd(7, keys[2] + shift, kPairBytes);
  _tile_dpbf16ps(2, 6, 7);
  _tile_loadd(7, keys[3] + shift, kPairBytes);
  _tile_dpbf16ps(3, 6, 7);
}
/// Of int8, 64 or 16 dimensions.
QUIRE_INLINE void multiply_fours_64(const int8_t* const (&keys)[kStretchTiles], size_t shift) {
  _tile_loadd(5, keys[0] + shift, kTileRowBytes);
  _tile_dpbssd(0, 4, 5);
  _tile_loadd(5, keys[1] + shift, kTileRowBytes);
  _tile_dpbssd(1, 4, 5);
  _tile_loadd(5, keys[2] + shift, kTileRowBytes);
  _tile_dpbssd(2, 4, 5);
  _tile_loadd(5, keys[3] + shift, kTileRowBytes);
  _tile_dpbssd(3, 4, 5);
}
QUIRE_INLINE void multiply_fours_16(const int8_t* const (&keys)[kStretchTiles], size_t shift) {
  _tile_loadd(7, keys[0] + shift, kTileRowBytes);
  _tile_dpbssd(0, 6, 7);
  _tile_loadd(7, keys[1] + shift, kTileRowBytes);
  _tile_dpbssd(1, 6, 7);
  _tile_loadd(7, keys[2] + shift, kTileRowBytes);
  _tile_dpbssd(2, 6, 7);
  _tile_loadd(7, keys[3] + shift, kTileRowBytes);
  _tile_dpbssd(3, 6, 7);
}
/// As many tiles of 32 dimensions or keys as there are, `apart` from each other; or of 16.
template <bool kHalf>
QUIRE_INLINE void multiply_apart(const uint16_t* pairs, size_t apart, size_t stride, size_t count) {
  if constexpr (kHalf) {
    _tile_loadd(7, pairs, stride);
    _tile_dpbf16ps(0, 6, 7);
    if (count == 1) return;
    _tile_loadd(7, pairs + apart, stride);
    _tile_dpbf16ps(1, 6, 7);
    if (count == 2) return;
    _tile_loadd(7, pairs + 2 * apart, stride);
    _tile_dpbf16ps(2, 6, 7);
    if (count == 3) return;
    _tile_loadd(7, pairs + 3 * apart, stride);
    _tile_dpbf16ps(3, 6, 7);
  } else {
    _tile_loadd(5, pairs, stride);
    _tile_dpbf16ps(0, 4, 5);
    if (count == 1) return;
    _tile_loadd(5, pairs + apart, stride);
    _tile_dpbf16ps(1, 4, 5);
    if (count == 2) return;
    _tile_loadd(5, pairs + 2 * apart, stride);
    _tile_dpbf16ps(2, 4, 5);
    if (count == 3) return;
    _tile_loadd(5, pairs + 3 * apart, stride);
    _tile_dpbf16ps(3, 4, 5);
  }
}

/// Copies the last dimensions of the keys, fewer than 16, and puts zeros behind them: kHalfRows rows of pairs
/// for each tile.
void copy_last_dims(const uint16_t* const (&keys)[kStretchTiles], size_t from, size_t head_dim,
                    uint16_t* to) {
  for (const uint16_t* tile : keys) {
    for (size_t d = from; d < from + 2 * kHalfRows; d += 2, to += kPairs) {
      const __m512i pairs = d < head_dim ? _mm512_loadu_si512(tile + d * kTileKeys) : _mm512_setzero_si512();
      _mm512_storeu_si512(to, pairs);
    }
  }
}

/// Copies a tile of values with zeros for keys outside of [begin, end), whose weights are not quite zero, and
/// for dimensions behind the head's.
void copy_values(const uint16_t* from, size_t head_dim, int begin, int end, uint16_t* to, size_t padded_dim) {
  for (int key = 0; key < static_cast<int>(kTileKeys); key += 2) {
    const auto sees = [&](int which) { return which >= begin && which < end; };
    const uint32_t both = (sees(key) ? 0xffffU : 0) | (sees(key + 1) ? 0xffff0000U : 0);
    const __m512i mask = _mm512_set1_epi32(static_cast<int>(both));
    for (size_t d = 0; d < padded_dim; d += Vec::kLanes) {
      const size_t lanes = head_dim - d < Vec::kLanes ? head_dim - d : Vec::kLanes;
      const __m512i pairs = _mm512_maskz_loadu_epi32(Vec::mask(lanes), from + 2 * d);
      _mm512_storeu_si512(to + 2 * d, _mm512_and_si512(pairs, mask));
    }
    from += 2 * head_dim;
    to += 2 * padded_dim;
  }
}

}  // namespace
}  // namespace quire::kernels::cpu::amx

namespace quire::kernels::cpu {

/// Of few rows.
template <class Format>
struct FewRowsProducts {
  static constexpr size_t kTile = 0;
  using Vec = avx512::Vec;
  using At = Stretch<Vec, Format>;

  static void score(const AttentionArgs& args, const AttentionRows<Vec>& rows, uint32_t begin, uint32_t end,
                    uint32_t base, const At& at) {
    if constexpr (Format::kIntegerKeys) {
      IntegerKeyProducts<avx512_vnni::ShiftedDot, Format>::score(args, rows, begin, end, base, at);
    } else {
      const auto end_key = static_cast<size_t>(visible<Vec>(args, end - 1, base).end);
      amx::score_few_rows<typename Format::Stored>(rows, size_t{begin} * args.group, size_t{end} * args.group,
                                                   args.head_dim, at, end_key);
    }
  }
  static void accumulate(const AttentionArgs& args, const AttentionRows<Vec>& rows, size_t first, size_t last,
                         const At& at, KeyRange<Vec> range) {
    for (size_t row = first; row < last; row += Vec::kLanes) {
      rescale(rows, row, last - row < Vec::kLanes ? last - row : Vec::kLanes);
    }
    amx::add_few_rows<typename Format::Stored>(rows, first, last, args.head_dim, at, range);
  }

 protected:
  /// The output of up to as many rows as a vector has lanes, where their maxima have changed.
  static QUIRE_INLINE void rescale(const AttentionRows<Vec>& rows, size_t row, size_t count) {
    const Vec factors = Vec::load(rows.rescale + row, count);
    uint32_t changed = Vec::less(factors, Vec::set1(1.0F)) & ((1U << count) - 1U);
    for (; changed != 0; changed &= changed - 1) {
      const size_t at = row + static_cast<size_t>(__builtin_ctz(changed));
      float* out = rows.out + at * rows.padded_dim;
      const Vec factor = Vec::set1(rows.rescale[at]);
      for (size_t d = 0; d < rows.padded_dim; d += Vec::kLanes) {
        Vec::store(out + d, Vec::mul(Vec::load(out + d), factor));
      }
    }
  }
};

template <>
struct StretchProducts<avx512::Vec, amx::Bytes> : FewRowsProducts<amx::Bytes> {};

template <bool kScales>
struct StretchProducts<avx512::Vec, amx::Pairs<kScales>> : FewRowsProducts<amx::Pairs<kScales>> {
  using Few = FewRowsProducts<amx::Pairs<kScales>>;
  using Vec = avx512::Vec;
  using At = Stretch<Vec, amx::Pairs<kScales>>;
  using Few::rescale;
  static constexpr size_t kTile = kTileRows;
  static constexpr size_t kVectors = kStretchKeys / Vec::kLanes;

  /// Whether rows are computed by tiles, and the head fills them.
  static QUIRE_INLINE bool has_tiles(const AttentionArgs& args, const AttentionRows<Vec>& rows) {
    return !is_few(args) && args.head_dim == rows.padded_dim;
  }

  static void score(const AttentionArgs& args, const AttentionRows<Vec>& rows, uint32_t begin, uint32_t end,
                    uint32_t base, const At& at) {
    if (is_few(args)) return Few::score(args, rows, begin, end, base, at);
    const size_t first = size_t{begin} * args.group;
    for (size_t row = first; row < size_t{end} * args.group; row += kTile) {
      float* scores = rows.weights + row * kStretchKeys;
      score_tile(args, rows, row, scores, row == first, at);
      if constexpr (kScales) {
        const auto found = scores_of(rows, row, scores);
        for (size_t i = 0; i < kTile; ++i) {
          for (size_t j = 0; j < kVectors; ++j) {
            Vec::store(scores + i * kStretchKeys + j * Vec::kLanes, found(i, j));
          }
        }
      }
    }
  }

  /// Of kTile rows from `row` on, to `scores`, of integers as such. `is_first`: of the stretch, so that it
  /// fetches what the next one needs.
  static void score_tile(const AttentionArgs& args, const AttentionRows<Vec>& rows, size_t row, float* scores,
                         bool is_first, const At& at) {
    if constexpr (kScales) {
      score_integers(rows, row, scores, is_first, at);
    } else {
      score_pairs(args, rows, row, scores, is_first, at);
    }
  }

  /// What is behind `scores`, a tile's from `row` on, vector by vector.
  static QUIRE_INLINE auto scores_of(const AttentionRows<Vec>& rows, size_t row, const float* scores) {
    if constexpr (kScales) {
      return [&rows, row, scores](size_t i, size_t j) {
        const IntegerQuery<Vec> query(rows.q + (row + i) * rows.padded_dim, rows.padded_dim);
        const __m512i sums = _mm512_loadu_si512(scores + i * kStretchKeys + j * Vec::kLanes);
        return Vec::mul({_mm512_cvtepi32_ps(sums)}, Vec::set1(*query.scale));
      };
    } else {
      return [scores](size_t i, size_t j) { return Vec::load(scores + i * kStretchKeys + j * Vec::kLanes); };
    }
  }

  static void accumulate(const AttentionArgs& args, const AttentionRows<Vec>& rows, size_t first, size_t last,
                         const At& at, KeyRange<Vec> range) {
    if (is_few(args)) return Few::accumulate(args, rows, first, last, at, range);
    const Values values = find_values(args, rows, at, range);
    for (size_t row = first; row < last; row += kTileRows) {
      const size_t end = last - row < kTileRows ? last : row + kTileRows;
      Few::rescale(rows, row, end - row);
      add_tile(rows, row, end, rows.weights + row * kStretchKeys, kStretchKeys, values);
    }
  }

  /// The values of a stretch that rows read, two tiles of keys in pairs at a time, and how far apart their
  /// pairs of keys are, in bytes.
  struct Values {
    size_t begin;
    size_t end;
    const uint16_t* pairs[kStretchKeys / amx::kPairKeys];
    size_t strides[kStretchKeys / amx::kPairKeys];
  };

  /// Where they lie, if two tiles follow each other and rows read all of both; else copies in the free
  /// memory.
  static Values find_values(const AttentionArgs& args, const AttentionRows<Vec>& rows, const At& at,
                            KeyRange<Vec> range) {
    constexpr int kKeys = amx::kPairKeys;
    constexpr int kHalf = kTileKeys;
    Values values = {static_cast<size_t>(range.begin / kKeys),
                     static_cast<size_t>((range.end + kKeys - 1) / kKeys),
                     {},
                     {}};
    auto* free = reinterpret_cast<uint16_t*>(rows.free + kTileRows * rows.padded_dim);
    for (size_t pair = values.begin; pair < values.end; ++pair) {
      const int begin = range.begin - static_cast<int>(pair) * kKeys;
      const int end = range.end - static_cast<int>(pair) * kKeys;
      const uint16_t* const* tiles = at.values + 2 * pair;
      values.pairs[pair] = tiles[0];
      values.strides[pair] = 2 * args.head_dim * sizeof(uint16_t);
      const bool whole = begin <= 0 && end >= kKeys && args.head_dim == rows.padded_dim;
      if (whole && tiles[1] == tiles[0] + kTileKeys * args.head_dim) continue;
      values.pairs[pair] = free;
      values.strides[pair] = 2 * rows.padded_dim * sizeof(uint16_t);
      for (int half = 0; half < 2; ++half, free += kTileKeys * rows.padded_dim) {
        amx::copy_values(tiles[half], args.head_dim, begin - half * kHalf, end - half * kHalf, free,
                         rows.padded_dim);
      }
    }
    return values;
  }

  /// Adds the values to the rows [row, end) of a tile, whose weights are at `from`, `apart` floats from row
  /// to row.
  static void add_tile(const AttentionRows<Vec>& rows, size_t row, size_t end, const float* from,
                       size_t apart, const Values& values) {
    const size_t padded = rows.padded_dim;
    const size_t count = end - row;
    float* out = rows.out + row * padded;
    const bool whole = count == kTileRows;
    float* sums = whole ? out : rows.free;  // whose other rows are no one's
    if (!whole) copy_rows(out, sums, count * padded);
    const auto* weights = reinterpret_cast<const uint16_t*>(from);
    const size_t stride = padded * sizeof(float);
    amx::finish_writes();
    for (size_t d = 0; d < padded; d += 4 * kTileKeys) {
      const size_t tiles = (padded - d) / kTileKeys < 4 ? (padded - d) / kTileKeys : 4;
      amx::load_sums(sums + d, stride, tiles);
      for (size_t pair = values.begin; pair < values.end; ++pair) {
        _tile_loadd(4, weights + pair * amx::kPairKeys, apart * sizeof(float));
        amx::multiply_apart<false>(values.pairs[pair] + 2 * d, 2 * kTileKeys, values.strides[pair], tiles);
      }
      amx::store_sums(sums + d, stride, tiles);
    }
    amx::finish_writes();
    if (!whole) copy_rows(sums, out, count * padded);
  }

 private:
  static QUIRE_INLINE bool is_few(const AttentionArgs& args) {
    return size_t{args.num_tokens} * args.group <= kFewRows;
  }

  static QUIRE_INLINE void copy_rows(const float* from, float* to, size_t floats) {
    for (size_t i = 0; i < floats; i += Vec::kLanes) Vec::store(to + i, Vec::load(from + i));
  }

  static void score_pairs(const AttentionArgs& args, const AttentionRows<Vec>& rows, size_t row,
                          float* scores, bool is_first, const At& at) {
    const size_t head_dim = args.head_dim;
    const size_t stride = rows.padded_dim * sizeof(float);
    const size_t whole = head_dim / 32 * 32;
    const size_t rest = head_dim % 32;
    const bool copied = rest % 16 != 0;
    auto* last = reinterpret_cast<uint16_t*>(rows.free);
    if (copied) amx::copy_last_dims(at.keys, head_dim / 16 * 16, head_dim, last);
    amx::finish_writes();
    const auto* factors = reinterpret_cast<const uint16_t*>(rows.q + row * rows.padded_dim);
    amx::zero_sums();
    for (size_t d = 0; d < whole; d += 32) {
      if (is_first) prefetch(at, d);
      _tile_loadd(4, factors + d, stride);
      amx::multiply_keys_32(at.keys, d * kTileKeys);
    }
    if (rest >= 16) {
      _tile_loadd(6, factors + whole, stride);
      amx::multiply_keys_16(at.keys, whole * kTileKeys);
    }
    if (copied) {
      _tile_loadd(6, factors + head_dim / 16 * 16, stride);
      amx::multiply_apart<true>(last, amx::kHalfRows * amx::kPairs, amx::kPairBytes, kStretchTiles);
    }
    amx::store_sums(scores, kStretchKeys * sizeof(float), kStretchTiles);
  }

  /// Of the last dimensions, fewer than 16, whatever follows in the block is multiplied too, by zeros.
  static void score_integers(const AttentionRows<Vec>& rows, size_t row, float* scores, bool is_first,
                             const At& at) {
    const size_t padded = rows.padded_dim;
    const size_t stride = padded * sizeof(float);
    const IntegerQuery<Vec> query(rows.q + row * padded, padded);
    amx::finish_writes();
    amx::zero_sums();
    size_t d = 0;
    for (; d + kTileRowBytes <= padded; d += kTileRowBytes) {
      if (is_first) prefetch_keys(at, d, kTileRowBytes);
      _tile_loadd(4, query.values + d, stride);
      amx::multiply_fours_64(at.keys, d * kTileKeys);
    }
    for (; d < padded; d += kTileKeys) {
      if (is_first) prefetch_keys(at, d, kTileKeys);
      _tile_loadd(6, query.values + d, stride);
      amx::multiply_fours_16(at.keys, d * kTileKeys);
    }
    amx::store_sums(scores, kStretchKeys * sizeof(float), kStretchTiles);
    amx::finish_writes();
  }

  /// The lines of the next keys that lie where those of `dims` dimensions from d on do now.
  static QUIRE_INLINE void prefetch_keys(const At& at, size_t d, size_t dims) {
    const size_t first = d / kInt8KeyStep * kStretchTiles;
    for (size_t i = 0; i < dims / kInt8KeyStep * kStretchTiles; ++i) at.fetch_line(at.next_keys, first + i);
  }

  /// The lines of the next keys and values that lie where those of 32 dimensions do now.
  static QUIRE_INLINE void prefetch(const At& at, size_t d) {
    for (size_t tile = 0; tile < kStretchTiles; ++tile) {
      for (size_t i = 0; i < kTileRows; ++i) {
        __builtin_prefetch(at.next_keys[tile] + d * kTileKeys + i * amx::kPairs);
        __builtin_prefetch(at.next_values[tile] + d * kTileKeys + i * amx::kPairs);
      }
    }
  }
};

}  // namespace quire::kernels::cpu

namespace quire::kernels::cpu::amx {
namespace {

template <class Format>
void attention_tiles(const AttentionArgs& args) {
  const Registers registers(Format::kIntegerKeys ? kFours : kHalfRows);
  attention<Vec, Format>(args);
}

}  // namespace

extern const AttentionKernel kBf16Attention = attention_tiles<Pairs<false>>;
extern const AttentionKernel kInt8Attention = attention_tiles<Bytes>;

}  // namespace quire::kernels::cpu::amx
