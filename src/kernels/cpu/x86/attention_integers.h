#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/x86/attention_stretch.h"

// Products of queries with keys of int8 as integers, which are exact: however they are computed, the bits are
// the same. A query is rounded to int8 by its largest magnitude, as a key is (SageAttention, Zhang et al.
// 2025).
//
// A `Dot` is what VPDPBUSD does with a level's registers:
//   Vec, Sum        kLanes f32, and as many i32
//   key_tiles       for so many rows, up to four: the tiles of keys whose sums fit the registers
//   unsigned_bytes  bytes with 128 added
//   multiply_add    (sum, signed bytes, unsigned bytes): sum + four products a lane
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

  /// Rounds q, [head_dim]. The scale is not finite if an element is not; magnitudes below kLeast are zero.
  QUIRE_INLINE void set(const float* q, size_t head_dim, float factor) const {
    constexpr float kMost = 127.0F;
    constexpr float kLeast = 0x1p-120F;  // whose inverse times kMost is finite
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
    *scale = largest / kMost * factor + V::sum(poison);
    const bool is_zero = !(largest >= kLeast) || *scale - *scale != 0.0F;
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
      const Sum offset = Sum::set4(reinterpret_cast<const uint8_t*>(query(i).offset));
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
        for (size_t k = 0; k < kVectors; ++k)
          keys[j][k] = Dot::unsigned_bytes(Sum::load(line + k * V::kLanes));
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

/// Products with keys by VPDPBUSD, with values as VectorProducts has them.
template <class Dot, class Format>
struct IntegerProducts : VectorProducts<typename Dot::Vec, Format> {
  using Vec = typename Dot::Vec;
  static void score(const AttentionArgs& args, const AttentionRows<Vec>& rows, uint32_t begin, uint32_t end,
                    uint32_t /*base*/, const Stretch<Vec, Format>& at) {
    const size_t first = size_t{begin} * args.group;
    for_row_tiles<Vec, 4>(first, size_t{end} * args.group, [&]<size_t kRows>(size_t row) {
      score_integers<Dot, Format, kRows>(rows, row, at, row == first, args.head_dim);
    });
  }
};

}  // namespace quire::kernels::cpu
