#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/x86/attention_stretch.h"
#include "kernels/quantize.h"

// Products of queries with keys of int8, and of weights with values of int8, as integers, which are exact:
// however they are computed, the bits are the same. A query is rounded to int8 by its largest magnitude, as a
// key is (SageAttention, Zhang et al. 2025). Of a row's weights in a stretch, times the scales of their
// values, the largest becomes the largest i16: more digits than a value has, and 64 products still fit 32
// bits.
//
// A `Dot` is what a level has for such products:
//   Vec, Sum        kLanes f32, and as many i32
//   key_tiles       for so many rows, up to four: the tiles of keys whose sums fit the registers
//   of_keys         keys as they are multiplied: with 128 added if kShifted
//   multiply_add    (sum, of a query, of_keys()): sum + four products of bytes a lane
//   multiply_pairs  (sum, a, b): sum + two products of i16 a lane
namespace quire::kernels::cpu {

/// A query in the memory of a row of factors, [padded_dim] floats.
template <VecType V>
class IntegerQuery {
 public:
  explicit QUIRE_INLINE IntegerQuery(float* row, size_t padded_dim)
      : values(reinterpret_cast<int8_t*>(row)),
        scale(row + padded_dim / sizeof(float)),
        offset(reinterpret_cast<int32_t*>(scale) + 1) {}

  int8_t* values;   // [padded_dim]; zeros follow the head's dimensions up to a multiple of V::kLanes
  float* scale;     // what a product is times to be a score
  int32_t* offset;  // -128 times the sum of the values: for keys that have 128 added

  /// Rounds q, [head_dim]. The scale is the default NaN if an element is not finite; as in quantize_int8(),
  /// small ones are zeros.
  QUIRE_INLINE void set(const float* q, size_t head_dim, float factor) const {
    constexpr float kMost = 127.0F;
    const auto load = [&](size_t d) __attribute__((always_inline)) {
      const size_t left = head_dim - d;
      return left < V::kLanes ? V::load(q + d, left) : V::load(q + d);
    };
    V most = V::zero();
    V poison = V::zero();
    for (size_t d = 0; d < head_dim; d += V::kLanes) {
      const V x = load(d);
      most = V::max(V::max(x, V::sub(V::zero(), x)), most);
      poison = V::fma(x, V::zero(), poison);
    }
    const float largest = V::max_lane(most);
    const bool is_finite = V::sum(poison) == 0.0F;
    *scale = is_finite ? largest / kMost * factor : __builtin_nanf("");
    const bool is_zero = !(largest >= kLeastInt8Magnitude) || !is_finite;
    const V inverse = V::set1(is_zero ? 0.0F : kMost / largest);
    V sum = V::zero();
    for (size_t d = 0; d < head_dim; d += V::kLanes) {
      const V rounded = is_zero ? V::zero() : V::round(V::mul(load(d), inverse));
      V::store_int8(values + d, rounded);
      sum = V::add(sum, rounded);
    }
    *offset = -128 * static_cast<int32_t>(V::sum(sum));
  }
};

/// What a format has whose keys are multiplied so.
template <VecType V>
struct IntegerKeys {
  using KeyElement = int8_t;
  static constexpr bool kIntegerKeys = true;
  static QUIRE_INLINE void keep_query(const AttentionArgs& args, const float* q, float* factors,
                                      size_t padded_dim) {
    IntegerQuery<V>(factors, padded_dim).set(q, args.head_dim, args.scale);
  }
};

/// A format of values with such keys.
template <class Dot, class Values>
struct WithIntegerKeys : Values, IntegerKeys<typename Dot::Vec> {
  using KeyElement = typename IntegerKeys<typename Dot::Vec>::KeyElement;
  static constexpr bool kIntegerKeys = true;
  using Wide = std::conditional_t<std::is_void_v<typename Values::Wide>, void,
                                  WithIntegerKeys<Dot, typename Values::Wide>>;
};

/// int8 of which values too are multiplied as integers, or what its values are widened to: i16, in pairs of
/// keys.
template <class Dot, class E = int8_t>
struct Integers : IntegerKeys<typename Dot::Vec> {
  using V = typename Dot::Vec;
  using Sum = typename Dot::Sum;
  using Element = E;
  static constexpr bool kIsWide = std::is_same_v<E, int16_t>;
  using Wide = std::conditional_t<kIsWide, void, Integers<Dot, int16_t>>;
  static constexpr bool kScaled = true;
  static constexpr bool kPrefetches = !kIsWide;
  static constexpr size_t kStep = 2;
  static constexpr size_t kLane = kIsWide ? 2 : 1;
  static constexpr size_t kWidenRows = cpu::kWidenRows;
  static constexpr float kSlack = 0.0F;
  static constexpr bool kKeepsTwo = false;
  /// Of minus infinity 2^-87, which is as good as 0 beside 1, and hardly ever a subnormal after the scale of
  /// its value. A NaN is the default one, as in scales of keys, queries and what arithmetic makes of
  /// infinities.
  static QUIRE_INLINE V exp(V x) { return vec_exp_17_bits(x, -60.0F); }
  static QUIRE_INLINE V keep(float* numbers, size_t first, V values) {
    V::store(numbers + first, values);
    return values;
  }
  /// Of two keys, `width` elements apart, the dimensions of a vector. It may read what follows the last one.
  static QUIRE_INLINE Sum load(const E* p, size_t width) {
    if constexpr (kIsWide) {
      return Sum::load(reinterpret_cast<const float*>(p));
    } else {
      return Sum::load_pairs(p, p + width);
    }
  }
  /// It may write behind the lanes that there are; the next row overwrites that.
  static QUIRE_INLINE void widen(const int8_t* from, int16_t* to, size_t width, size_t /*lanes*/) {
    Sum::store(reinterpret_cast<float*>(to), Sum::load_pairs(from, from + width));
  }
};

/// The weights of a stretch in the memory of their row, [kStretchKeys] floats, rounded to i16 by the largest.
template <VecType V>
class IntegerWeights {
 public:
  explicit QUIRE_INLINE IntegerWeights(float* row)
      : values(reinterpret_cast<int16_t*>(row)), unit(row + kStretchKeys / 2) {}

  int16_t* values;  // [kStretchKeys], not negative
  float* unit;      // what a product is times by

  /// Rounds what is there. The unit is not finite if a weight is not; if all are below kLeast, all are zero.
  QUIRE_INLINE void round() const {
    constexpr float kMost = 32767.0F;
    constexpr float kLeast = 0x1p-110F;  // whose inverse times kMost is finite
    constexpr size_t kVectors = kStretchKeys / V::kLanes;
    const auto* row = reinterpret_cast<const float*>(values);
    V weights[kVectors];
    V most = V::zero();
    V poison = V::zero();
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      weights[j] = V::load(row + j * V::kLanes);
      most = V::max(weights[j], most);
      poison = V::fma(weights[j], V::zero(), poison);
    }
    const float largest = V::max_lane(most);
    const V inverse = V::set1(largest >= kLeast ? kMost / largest : 0.0F);
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      V::store_int16(values + j * V::kLanes, V::mul(weights[j], inverse));
    }
    *unit = largest / kMost + V::sum(poison);
  }
};

/// Scores of kRows rows for a stretch.
template <class Dot, class Format, size_t kRows, class V = typename Dot::Vec>
__attribute__((noinline)) void score_integers(const AttentionRows<V>& rows, size_t row,
                                              const Stretch<V, Format>& at, bool fetches, size_t head_dim) {
  using Sum = typename Dot::Sum;
  constexpr size_t kVectors = kTileKeys / V::kLanes;  // of a tile
  constexpr size_t kTiles = Dot::key_tiles(kRows);
  static_assert(kTileKeys * kInt8KeyStep == kLineBytes && kTileKeys % V::kLanes == 0 &&
                kStretchTiles % kTiles == 0);
  const size_t steps = head_dim / kInt8KeyStep;
  const auto query = [&](size_t i) {
    return IntegerQuery<V>(rows.q + (row + i) * rows.padded_dim, rows.padded_dim);
  };
  for (size_t tile = 0; tile < kStretchTiles; tile += kTiles) {
    Sum sums[kRows][kTiles][kVectors];
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const Sum offset =
          Dot::kShifted ? Sum::set4(reinterpret_cast<const uint8_t*>(query(i).offset)) : Sum::zero();
      QUIRE_UNROLL
      for (size_t j = 0; j < kTiles; ++j) {
        QUIRE_UNROLL
        for (size_t k = 0; k < kVectors; ++k) sums[i][j][k] = offset;
      }
    }
    for (size_t step = 0; step < steps; ++step) {
      Sum keys[kTiles][kVectors];
      QUIRE_UNROLL
      for (size_t j = 0; j < kTiles; ++j) {
        if (fetches) at.fetch_line(at.next_keys, tile * steps + step * kTiles + j);
        const auto* line = reinterpret_cast<const float*>(at.keys[tile + j] + step * kLineBytes);
        QUIRE_UNROLL
        for (size_t k = 0; k < kVectors; ++k) keys[j][k] = Dot::of_keys(Sum::load(line + k * V::kLanes));
      }
      QUIRE_UNROLL
      for (size_t i = 0; i < kRows; ++i) {
        const auto* four = reinterpret_cast<const uint8_t*>(query(i).values + step * kInt8KeyStep);
        const Sum of_query = Sum::set4(four);
        QUIRE_UNROLL
        for (size_t j = 0; j < kTiles; ++j) {
          QUIRE_UNROLL
          for (size_t k = 0; k < kVectors; ++k) {
            sums[i][j][k] = Sum::in_order(Dot::multiply_add(sums[i][j][k], of_query, keys[j][k]));
          }
        }
      }
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const V scale = V::set1(*query(i).scale);
      float* weights = rows.weights + (row + i) * kStretchKeys + tile * kTileKeys;
      QUIRE_UNROLL
      for (size_t j = 0; j < kTiles; ++j) {
        QUIRE_UNROLL
        for (size_t k = 0; k < kVectors; ++k) {
          V::store(weights + j * kTileKeys + k * V::kLanes, V::mul(Sum::to_float(sums[i][j][k]), scale));
        }
      }
    }
  }
}

/// Products with keys as integers, with values as VectorProducts has them.
template <class Dot, class Format>
struct IntegerKeyProducts : VectorProducts<typename Dot::Vec, Format> {
  using Vec = typename Dot::Vec;
  static void score(const AttentionArgs& args, const AttentionRows<Vec>& rows, uint32_t begin, uint32_t end,
                    uint32_t /*base*/, const Stretch<Vec, Format>& at) {
    const size_t first = size_t{begin} * args.group;
    for_row_tiles<Vec, 4>(first, size_t{end} * args.group, [&]<size_t kRows>(size_t row) {
      score_integers<Dot, Format, kRows>(rows, row, at, row == first, args.head_dim);
    });
  }
};

/// Sums of the products of kRows rows' weights with values in a stretch, kVectors vectors of the head from
/// `d` on.
template <class Dot, class Format, size_t kRows, size_t kVectors, class V = typename Dot::Vec>
struct IntegerSums {
  using Sum = typename Dot::Sum;
  using Element = typename Format::Element;
  const AttentionRows<V>& rows;
  const Stretch<V, Format>& at;
  size_t row;
  size_t d;
  size_t head_dim;
  Sum sums[kRows][kVectors];

  /// Of two keys, whose values are at `from`, and their weights the pair `pair` of a row's.
  QUIRE_INLINE void add(const Element* from, size_t pair) {
    Sum values[kVectors];
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      values[j] = Format::load(from + j * V::kLanes * Format::kLane, head_dim);
    }
    const float* pairs = rows.weights + row * kStretchKeys + pair;
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const Sum weights = Sum::set4(reinterpret_cast<const uint8_t*>(pairs + i * kStretchKeys));
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) {
        sums[i][j] = Sum::in_order(Dot::multiply_pairs(sums[i][j], values[j], weights));
      }
    }
  }

  /// Of all keys.
  QUIRE_INLINE void add_all() {
    constexpr size_t kAtOnce = 2;
    constexpr size_t kBytes = kAtOnce * 2 * kVectors * V::kLanes;
    for (size_t tile = 0; tile < kStretchTiles; ++tile) {
      const Element* from = at.values[tile] + d * Format::kLane;
      for (size_t of_tile = 0; of_tile < kTileKeys / 2; of_tile += kAtOnce) {
        const size_t pair = tile * kTileKeys / 2 + of_tile;
        if constexpr (Format::kPrefetches) {
          const size_t line = (d * kStretchKeys + pair / kAtOnce * kBytes) / kLineBytes;
          QUIRE_UNROLL
          for (size_t i = 0; i < (kBytes + kLineBytes - 1) / kLineBytes; ++i) {
            at.fetch_line(at.next_values, line + i);
          }
        }
        QUIRE_UNROLL
        for (size_t i = 0; i < kAtOnce; ++i, from += 2 * head_dim) add(from, pair + i);
      }
    }
  }

  /// Of the keys in `range`; the weights of others are zero.
  QUIRE_INLINE void add_some(KeyRange<V> range) {
    constexpr size_t kTilePairs = kTileKeys / 2;
    const size_t end = (static_cast<size_t>(range.end) + 1) / 2;
    for (size_t pair = static_cast<size_t>(range.begin) / 2; pair < end; ++pair) {
      const size_t shift = pair % kTilePairs * 2 * head_dim + d * Format::kLane;
      if constexpr (Format::kPrefetches) {
        __builtin_prefetch(at.next_values[pair / kTilePairs] + shift);
        __builtin_prefetch(at.next_values[pair / kTilePairs] + shift + head_dim);
      }
      add(at.values[pair / kTilePairs] + shift, pair);
    }
  }

  QUIRE_INLINE void add_to_output() {
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const V unit = V::set1(*IntegerWeights<V>(rows.weights + (row + i) * kStretchKeys).unit);
      const V rescale = V::set1(rows.rescale[row + i]);
      float* out = rows.out + (row + i) * rows.padded_dim + d;
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j, out += V::kLanes) {
        V::store(out, V::fma(Sum::to_float(sums[i][j]), unit, V::mul(V::load(out), rescale)));
      }
    }
  }
};

/// Adds the values for kRows rows that read the same keys, kVectors vectors of the head from `d` on.
template <class Dot, class Format, size_t kRows, size_t kVectors, class V = typename Dot::Vec>
QUIRE_INLINE void add_integers_part(const AttentionRows<V>& rows, size_t row, const Stretch<V, Format>& at,
                                    size_t d, size_t head_dim, KeyRange<V> range) {
  IntegerSums<Dot, Format, kRows, kVectors> of = {rows, at, row, d, head_dim, {}};
  if (range.begin == 0 && range.end == static_cast<int>(kStretchKeys)) {
    of.add_all();
  } else {
    of.add_some(range);
  }
  of.add_to_output();
}

/// The same for all dimensions, and what fills up the last vector.
template <class Dot, class Format, size_t kRows, class V = typename Dot::Vec>
__attribute__((noinline)) void add_integers(const AttentionRows<V>& rows, size_t row,
                                            const Stretch<V, Format>& at, size_t head_dim,
                                            KeyRange<V> range) {
  constexpr size_t kMost = kRows <= 2 ? 4 : V::kAttentionVectors;
  size_t d = 0;
  for (; d + kMost * V::kLanes <= head_dim; d += kMost * V::kLanes) {
    add_integers_part<Dot, Format, kRows, kMost>(rows, row, at, d, head_dim, range);
  }
  for (; d < head_dim; d += V::kLanes)
    add_integers_part<Dot, Format, kRows, 1>(rows, row, at, d, head_dim, range);
}

/// Products with keys and values as integers.
template <class Dot, class Format>
struct IntegerProducts : IntegerKeyProducts<Dot, Format> {
  using Vec = typename Dot::Vec;
  static void accumulate(const AttentionArgs& args, const AttentionRows<Vec>& rows, size_t first, size_t last,
                         const Stretch<Vec, Format>& at, KeyRange<Vec> range) {
    for (size_t row = first; row < last; ++row) {
      IntegerWeights<Vec>(rows.weights + row * kStretchKeys).round();
    }
    for_row_tiles<Vec, 4>(first, last, [&]<size_t kRows>(size_t row) {
      add_integers<Dot, Format, kRows>(rows, row, at, args.head_dim, range);
    });
  }
};
template <VecType V, class Dot, class E>
struct StretchProducts<V, Integers<Dot, E>> : IntegerProducts<Dot, Integers<Dot, E>> {};

}  // namespace quire::kernels::cpu
