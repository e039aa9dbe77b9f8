#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>
#include <type_traits>

#include "kernels/cpu/x86/attention_stretch.h"
#include "kernels/cpu/x86/vec_avx512.h"

// Products of queries with keys of int8 as integers, which are exact: however they are computed, the bits are
// the same. A query is rounded to int8 by its largest magnitude, as a key is (SageAttention, Zhang et al.
// 2025).
namespace quire::kernels::cpu {

/// A query in the memory of a row of factors, [padded_dim] floats.
template <VecType V>
class IntegerQuery {
 public:
  explicit QUIRE_INLINE IntegerQuery(float* row, size_t padded_dim)
      : values(reinterpret_cast<int8_t*>(row)),
        scale(row + padded_dim / sizeof(float)),
        offset(reinterpret_cast<int32_t*>(scale) + 1) {}

  int8_t* values;   // [padded_dim]; zeros follow the head's dimensions
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
struct IntegerKeys {
  using KeyElement = int8_t;
  static constexpr bool kIntegerKeys = true;
  static QUIRE_INLINE void keep_query(const AttentionArgs& args, const float* q, float* factors,
                                      size_t padded_dim) {
    IntegerQuery<avx512::Vec>(factors, padded_dim).set(q, args.head_dim, args.scale);
  }
};

/// A format of values with such keys.
template <class Values>
struct WithIntegerKeys : Values, IntegerKeys {
  using KeyElement = IntegerKeys::KeyElement;
  static constexpr bool kIntegerKeys = true;
  using Wide =
      std::conditional_t<std::is_void_v<typename Values::Wide>, void, WithIntegerKeys<typename Values::Wide>>;
};

/// Scores of kRows rows for a stretch.
template <VecType V, class Format, size_t kRows>
__attribute__((noinline)) void score_integers(const AttentionRows<V>& rows, size_t row,
                                              const Stretch<V, Format>& at, bool fetches, size_t head_dim) {
  static_assert(kTileKeys * kInt8KeyStep == kLineBytes);
  const size_t steps = head_dim / kInt8KeyStep;
  const auto query = [&](size_t i) {
    return IntegerQuery<V>(rows.q + (row + i) * rows.padded_dim, rows.padded_dim);
  };
  __m512i sums[kRows][kStretchTiles];
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    QUIRE_UNROLL
    for (size_t j = 0; j < kStretchTiles; ++j) sums[i][j] = _mm512_set1_epi32(*query(i).offset);
  }
  const __m512i least = _mm512_set1_epi8(-128);
  for (size_t step = 0; step < steps; ++step) {
    __m512i k[kStretchTiles];
    QUIRE_UNROLL
    for (size_t j = 0; j < kStretchTiles; ++j) {
      if (fetches) at.fetch_line(at.next_keys, step * kStretchTiles + j);
      const __m512i fours = _mm512_loadu_si512(at.keys[j] + step * kLineBytes);
      k[j] = _mm512_sub_epi8(fours, least);  // 128 added, as unsigned
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      int four = 0;
      __builtin_memcpy(&four, query(i).values + step * kInt8KeyStep, sizeof four);
      QUIRE_UNROLL
      for (size_t j = 0; j < kStretchTiles; ++j) {
        sums[i][j] = _mm512_dpbusd_epi32(sums[i][j], k[j], _mm512_set1_epi32(four));
      }
    }
  }
  QUIRE_UNROLL
  for (size_t i = 0; i < kRows; ++i) {
    const V scale = V::set1(*query(i).scale);
    QUIRE_UNROLL
    for (size_t j = 0; j < kStretchTiles; ++j) {
      V::store(rows.weights + (row + i) * kStretchKeys + j * V::kLanes,
               V::mul({_mm512_cvtepi32_ps(sums[i][j])}, scale));
    }
  }
}

/// Products with keys by VPDPBUSD, with values as VectorProducts has them.
template <class Format>
struct IntegerProducts : VectorProducts<avx512::Vec, Format> {
  using Vec = avx512::Vec;
  static void score(const AttentionArgs& args, const AttentionRows<Vec>& rows, uint32_t begin, uint32_t end,
                    uint32_t /*base*/, const Stretch<Vec, Format>& at) {
    const size_t first = size_t{begin} * args.group;
    for_row_tiles<Vec, 4>(first, size_t{end} * args.group, [&]<size_t kRows>(size_t row) {
      score_integers<Vec, Format, kRows>(rows, row, at, row == first, args.head_dim);
    });
  }
};

}  // namespace quire::kernels::cpu
