#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "kernels/cpu/x86/attention_rows.h"
#include "kernels/cpu/x86/vec_avx512.h"

// What tiles compute in amx_attention.cpp, to the bit, for few query rows, of which a tile would be mostly
// empty: the elements of 32 dimensions or keys are multiplied in f32, the even ones summed apart from the odd
// ones, then both sums added, and the result to the sum so far. All of this flushes subnormals, as tiles do.
namespace quire::kernels::cpu::amx {

using avx512::Vec;

/// The keys whose values are added at a time: two tiles.
inline constexpr size_t kPairKeys = 2 * kTileKeys;

/// K and V as they are stored: the elements of two dimensions or keys, `width` being those of a row.
struct StoredPairs {
  using Element = uint16_t;
  static constexpr size_t kLane = 2;
  static QUIRE_INLINE Vec first(const Element* p, size_t) { return avx512::Bf16Pairs::first(p); }
  static QUIRE_INLINE Vec second(const Element* p, size_t) { return avx512::Bf16Pairs::second(p); }
  static QUIRE_INLINE Vec first(const Element* p, size_t, size_t lanes) {
    return avx512::Bf16Pairs::first(p, lanes);
  }
  static QUIRE_INLINE Vec second(const Element* p, size_t, size_t lanes) {
    return avx512::Bf16Pairs::second(p, lanes);
  }
};
struct StoredBytes {
  using Element = int8_t;
  static constexpr size_t kLane = 1;
  static QUIRE_INLINE Vec first(const Element* p, size_t) { return avx512::I8::load(p); }
  static QUIRE_INLINE Vec second(const Element* p, size_t width) { return avx512::I8::load(p + width); }
  static QUIRE_INLINE Vec first(const Element* p, size_t, size_t lanes) { return avx512::I8::load(p, lanes); }
  static QUIRE_INLINE Vec second(const Element* p, size_t width, size_t lanes) {
    return avx512::I8::load(p + width, lanes);
  }
};

/// While it lives, the thread's f32 arithmetic takes subnormals for zeros. What shall obey it is in functions
/// that are not inlined, so that the compiler moves nothing past it.
class FlushSubnormals {
 public:
  FlushSubnormals() : before_(_mm_getcsr()) { _mm_setcsr(before_ | 0x8040U); }
  FlushSubnormals(const FlushSubnormals&) = delete;
  FlushSubnormals& operator=(const FlushSubnormals&) = delete;
  ~FlushSubnormals() { _mm_setcsr(before_); }

 private:
  unsigned before_;
};

/// kRows x kVectors sums of the even elements, and as many of the odd ones.
template <VecType V, size_t kRows, size_t kVectors>
struct PairSums {
  V of[2][kRows][kVectors];

  QUIRE_INLINE void clear() {
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) of[0][i][j] = of[1][i][j] = V::zero();
    }
  }
  /// `factors`: of the first row, `stride` from those of the next.
  QUIRE_INLINE void add(size_t which, const V (&operands)[kVectors], const float* factors, size_t stride) {
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      const V factor = V::set1(factors[i * stride]);
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) of[which][i][j] = V::fma(operands[j], factor, of[which][i][j]);
    }
  }
  /// What tiles add behind the last key that is seen, of even and of odd ones: -0 becomes 0.
  QUIRE_INLINE void add_zeros(bool even, bool odd) {
    const bool adds[2] = {even, odd};
    for (size_t which = 0; which < 2; ++which) {
      if (!adds[which]) continue;
      QUIRE_UNROLL
      for (size_t i = 0; i < kRows; ++i) {
        QUIRE_UNROLL
        for (size_t j = 0; j < kVectors; ++j) of[which][i][j] = V::add(of[which][i][j], V::zero());
      }
    }
  }
  /// `to`: the sums so far, [kRows][stride].
  QUIRE_INLINE void finish(float* to, size_t stride, bool is_first) const {
    QUIRE_UNROLL
    for (size_t i = 0; i < kRows; ++i) {
      QUIRE_UNROLL
      for (size_t j = 0; j < kVectors; ++j) {
        float* sum = to + i * stride + j * V::kLanes;
        const V before = is_first ? V::zero() : V::load(sum);
        V::store(sum, V::add(before, V::add(of[0][i][j], of[1][i][j])));
      }
    }
  }
};

/// Factors of a row that are bf16, as f32.
template <VecType V>
QUIRE_INLINE void widen_factors(const float* row, float* to, size_t count) {
  const auto* from = reinterpret_cast<const uint16_t*>(row);
  for (size_t i = 0; i < count; i += V::kLanes) V::store(to + i, avx512::Bf16::load(from + i));
}

/// The scores of kRows rows for kTiles tiles from `tile` on. `q`: [kRows][stride].
template <class Stored, size_t kRows, size_t kTiles, VecType V, class Format>
__attribute__((noinline)) void score_few(const float* q, size_t stride, const Stretch<V, Format>& at,
                                         size_t tile, bool fetches, float* scores, size_t head_dim) {
  PairSums<V, kRows, kTiles> sums;
  size_t d = 0;
  while (d < head_dim) {
    const size_t left = head_dim - d;
    const size_t end = d + (left >= 32 ? 32 : left >= 16 ? 16 : left);
    const bool is_first = d == 0;
    sums.clear();
    for (; d < end; d += 2) {
      V operands[2][kTiles];
      QUIRE_UNROLL
      for (size_t j = 0; j < kTiles; ++j) {
        if (fetches) at.fetch_line(at.next_keys, tile * head_dim / 2 + d / 2 * kTiles + j);
        const typename Stored::Element* keys = at.keys[tile + j] + d * kTileKeys;
        operands[0][j] = Stored::first(keys, kTileKeys);
        operands[1][j] = Stored::second(keys, kTileKeys);
      }
      sums.add(0, operands[0], q + d, stride);
      sums.add(1, operands[1], q + d + 1, stride);
    }
    sums.finish(scores, kStretchKeys, is_first);
  }
}

/// Adds to `sums`, [kRows][stride], the products of the keys [begin, end) of two tiles from `tile` on for
/// kVectors vectors of the head from `d` on; the last has `tail` lanes if that is not 0. `weights`:
/// [kRows][kStretchKeys].
template <class Stored, size_t kRows, size_t kVectors, VecType V, class Format>
__attribute__((noinline)) void add_few(const float* weights, const Stretch<V, Format>& at, size_t tile,
                                       bool fetches, size_t d, size_t head_dim, size_t begin, size_t end,
                                       size_t tail, float* sums, size_t stride) {
  constexpr size_t kBytes = 2 * kVectors * V::kLanes * sizeof(typename Stored::Element);  // of two keys
  const size_t before = (tile * kTileKeys * head_dim + kPairKeys * d) * sizeof(typename Stored::Element);
  PairSums<V, kRows, kVectors> pairs;
  pairs.clear();
  for (size_t key = begin / 2 * 2; key < end; key += 2) {
    const size_t shift = key % kTileKeys * head_dim + d * Stored::kLane;
    const typename Stored::Element* from = at.values[tile + key / kTileKeys] + shift;
    QUIRE_UNROLL
    for (size_t i = 0; i < kBytes; i += kLineBytes) {
      if (fetches) at.fetch_line(at.next_values, (before + key / 2 * kBytes + i) / kLineBytes);
    }
    V operands[2][kVectors];
    QUIRE_UNROLL
    for (size_t j = 0; j < kVectors; ++j) {
      const typename Stored::Element* part = from + j * V::kLanes * Stored::kLane;
      operands[0][j] = tail == 0 ? Stored::first(part, head_dim) : Stored::first(part, head_dim, tail);
      operands[1][j] = tail == 0 ? Stored::second(part, head_dim) : Stored::second(part, head_dim, tail);
    }
    if (key >= begin) pairs.add(0, operands[0], weights + key, kStretchKeys);
    if (key + 1 < end) pairs.add(1, operands[1], weights + key + 1, kStretchKeys);
  }
  pairs.add_zeros(end + end % 2 < kPairKeys, end / 2 * 2 + 1 < kPairKeys);
  pairs.finish(sums, stride, false);
}

/// Calls body.template operator()<rows>(first row) for the rows [0, count), four at a time.
template <VecType V, class Body>
QUIRE_INLINE void for_few_rows(size_t count, const Body& body) {
  for_row_tiles<V, 4>(0, count, body);
}

/// For the rows [first, last), which see keys before `end`.
template <class Stored, class Format, VecType V>
void score_few_rows(const AttentionRows<V>& rows, size_t first, size_t last, size_t head_dim,
                    const Stretch<V, Format>& at, size_t end) {
  constexpr size_t kTiles = 2;
  float* q = rows.free;
  for (size_t row = first; row < last; ++row) {
    const size_t from = row * rows.padded_dim;
    widen_factors<V>(rows.q + from, q + (row - first) * rows.padded_dim, rows.padded_dim);
  }
  const FlushSubnormals flush;
  for (size_t tile = 0; tile * kTileKeys < end; tile += kTiles) {
    for_few_rows<V>(last - first, [&]<size_t kRows>(size_t row) {
      score_few<Stored, kRows, kTiles>(q + row * rows.padded_dim, rows.padded_dim, at, tile, row == 0,
                                       rows.weights + (first + row) * kStretchKeys + tile * kTileKeys,
                                       head_dim);
    });
  }
}

/// Adds the values to the rows [first, last), which see the keys of `range`.
template <class Stored, class Format, VecType V>
void add_few_rows(const AttentionRows<V>& rows, size_t first, size_t last, size_t head_dim,
                  const Stretch<V, Format>& at, KeyRange<V> range) {
  const size_t count = last - first;
  constexpr size_t kLeastDim = 16;
  static_assert(kFewRows * kStretchKeys <= (kTileRows + kStretchKeys / 2) * kLeastDim);
  float* weights = rows.free;
  float* sums = rows.out + first * rows.padded_dim;
  for (size_t row = 0; row < count; ++row) {
    widen_factors<V>(rows.weights + (first + row) * kStretchKeys, weights + row * kStretchKeys, kStretchKeys);
  }
  const FlushSubnormals flush;
  const auto begin = static_cast<size_t>(range.begin);
  const auto end = static_cast<size_t>(range.end);
  for (size_t base = begin / kPairKeys * kPairKeys; base < end; base += kPairKeys) {
    const size_t tile = base / kTileKeys;
    const size_t from = begin > base ? begin - base : 0;
    const size_t to = end - base < kPairKeys ? end - base : kPairKeys;
    for_few_rows<V>(count, [&]<size_t kRows>(size_t row) {
      const auto add = [&]<size_t kVectors>(size_t d, size_t tail) __attribute__((always_inline)) {
        add_few<Stored, kRows, kVectors>(weights + row * kStretchKeys + base, at, tile, row == 0, d, head_dim,
                                         from, to, tail, sums + row * rows.padded_dim + d, rows.padded_dim);
      };
      size_t d = 0;
      for (; d + 2 * V::kLanes <= head_dim; d += 2 * V::kLanes) add.template operator()<2>(d, 0);
      for (; d + V::kLanes <= head_dim; d += V::kLanes) add.template operator()<1>(d, 0);
      if (d < head_dim) add.template operator()<1>(d, head_dim - d);
    });
  }
}

}  // namespace quire::kernels::cpu::amx
