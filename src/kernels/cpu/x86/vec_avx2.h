#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "kernels/cpu/x86/vec.h"

namespace quire::kernels::cpu::avx2 {

/// Eight f32 lanes.
struct Vec {
  static constexpr size_t kLanes = 8;
  static constexpr size_t kRegisters = 16;
  static constexpr size_t kAttentionRows = 6;
  static constexpr size_t kAttentionVectors = 2;

  __m256 v;

  static QUIRE_INLINE Vec zero() { return {_mm256_setzero_ps()}; }
  static QUIRE_INLINE Vec set1(float x) { return {_mm256_set1_ps(x)}; }
  static QUIRE_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p)}; }
  static QUIRE_INLINE void store(float* p, Vec a) { _mm256_storeu_ps(p, a.v); }

  static QUIRE_INLINE __m256i mask(size_t count) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(count)), lane);
  }
  static QUIRE_INLINE Vec load(const float* p, size_t count) { return {_mm256_maskload_ps(p, mask(count))}; }
  static QUIRE_INLINE void store(float* p, Vec a, size_t count) { _mm256_maskstore_ps(p, mask(count), a.v); }

  static QUIRE_INLINE Vec add(Vec a, Vec b) { return {_mm256_add_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec sub(Vec a, Vec b) { return {_mm256_sub_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec mul(Vec a, Vec b) { return {_mm256_mul_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec div(Vec a, Vec b) { return {_mm256_div_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm256_fmadd_ps(a.v, b.v, c.v)}; }
  static QUIRE_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm256_fnmadd_ps(a.v, b.v, c.v)}; }
  static QUIRE_INLINE Vec max(Vec a, Vec b) { return {_mm256_max_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec min(Vec a, Vec b) { return {_mm256_min_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec round(Vec a) {
    return {_mm256_round_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static QUIRE_INLINE Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm256_blendv_ps(no.v, yes.v, _mm256_cmp_ps(a.v, b.v, _CMP_LT_OQ))};
  }
  static QUIRE_INLINE Vec with_sign_of(Vec a, Vec sign) {
    return {_mm256_or_ps(a.v, _mm256_and_ps(sign.v, _mm256_set1_ps(-0.0F)))};
  }
  static QUIRE_INLINE Vec select_range(Vec a, Vec other, int offset, int begin, int end) {
    const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    const __m256i from = _mm256_cmpgt_epi32(_mm256_set1_epi32(begin - offset), lane);
    const __m256i to = _mm256_cmpgt_epi32(_mm256_set1_epi32(end - offset), lane);
    return {_mm256_blendv_ps(other.v, a.v, _mm256_castsi256_ps(_mm256_andnot_si256(from, to)))};
  }
  /// a * 2^n for integral |n| <= 252, in two steps, exact except for the last rounding into the subnormals.
  static QUIRE_INLINE Vec scale_by_pow2(Vec a, Vec n) {
    const __m256i whole = _mm256_cvtps_epi32(n.v);
    const __m256i half = _mm256_srai_epi32(whole, 1);
    const __m256i rest = _mm256_sub_epi32(whole, half);
    const __m256i bias = _mm256_set1_epi32(127);
    const __m256 first = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(half, bias), 23));
    const __m256 second = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_add_epi32(rest, bias), 23));
    return {_mm256_mul_ps(_mm256_mul_ps(a.v, first), second)};
  }
  static constexpr float kLeastExponent = -88.0F;  // n = -127: an exponent of 0, that is the factor 0
  static QUIRE_INLINE Vec scale_down(Vec a, Vec n) {
    const __m256i exponent = _mm256_add_epi32(_mm256_cvtps_epi32(n.v), _mm256_set1_epi32(127));
    return {_mm256_mul_ps(a.v, _mm256_castsi256_ps(_mm256_slli_epi32(exponent, 23)))};
  }
  static QUIRE_INLINE Vec add_exponent(Vec a, Vec n) {
    const __m256i exponent = _mm256_slli_epi32(_mm256_castps_si256(n.v), 23);
    return {_mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(a.v), exponent))};
  }
  static QUIRE_INLINE void store_int8(int8_t* p, Vec a) {
    const __m256i words = _mm256_cvtps_epi32(a.v);
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storel_epi64(reinterpret_cast<__m128i*>(p), _mm_packs_epi16(halves, halves));
  }
  static QUIRE_INLINE void store_int16(int16_t* p, Vec a) {
    const __m256i words = _mm256_cvtps_epi32(a.v);
    const __m128i halves = _mm_packs_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), halves);
  }
  static QUIRE_INLINE float first_lane(Vec a) { return _mm256_cvtss_f32(a.v); }
  static QUIRE_INLINE float sum(Vec a) {
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static QUIRE_INLINE float max_lane(Vec a) {
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(a.v), _mm256_extractf128_ps(a.v, 1));
    s = _mm_max_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_max_ss(s, _mm_movehdup_ps(s)));
  }
  static QUIRE_INLINE Vec sums(const Vec* rows) { return of_each(rows, add); }
  static QUIRE_INLINE Vec max_lanes(const Vec* rows) { return of_each(rows, max); }

 private:
  /// Both halves of each row together, then both of what that leaves, down to a lane; in each step two
  /// vectors' in one.
  template <class Operation>
  static QUIRE_INLINE Vec of_each(const Vec* rows, const Operation& both) {
    __m256d fours[4];  // of the rows i and i + 4
    for (size_t i = 0; i < 4; ++i) {
      const __m256 a = rows[i].v;
      const __m256 b = rows[i + 4].v;
      fours[i] = _mm256_castps_pd(
          both({_mm256_permute2f128_ps(a, b, 0x20)}, {_mm256_permute2f128_ps(a, b, 0x31)}).v);
    }
    __m256 twos[2];
    for (size_t i = 0; i < 2; ++i) {
      const __m256d a = fours[2 * i];
      const __m256d b = fours[2 * i + 1];
      twos[i] =
          both({_mm256_castpd_ps(_mm256_unpacklo_pd(a, b))}, {_mm256_castpd_ps(_mm256_unpackhi_pd(a, b))}).v;
    }
    return both({_mm256_shuffle_ps(twos[0], twos[1], 0x88)}, {_mm256_shuffle_ps(twos[0], twos[1], 0xdd)});
  }
};

/// Eight i32 lanes. In y they are stored as their bits.
struct IntVec {
  __m256i v;

  static QUIRE_INLINE IntVec zero() { return {_mm256_setzero_si256()}; }
  static QUIRE_INLINE IntVec load(const float* p) {
    return {_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))};
  }
  static QUIRE_INLINE IntVec load(const float* p, size_t count) {
    return {_mm256_maskload_epi32(reinterpret_cast<const int*>(p), Vec::mask(count))};
  }
  static QUIRE_INLINE void store(float* p, IntVec a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), a.v);
  }
  static QUIRE_INLINE void store(float* p, IntVec a, size_t count) {
    _mm256_maskstore_epi32(reinterpret_cast<int*>(p), Vec::mask(count), a.v);
  }
  static QUIRE_INLINE IntVec set4(const uint8_t* p) {
    int four = 0;
    __builtin_memcpy(&four, p, sizeof four);
    return {_mm256_set1_epi32(four)};
  }
  static QUIRE_INLINE IntVec load_pairs(const int8_t* first, const int8_t* second) {
    const __m256i low = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(first)));
    const __m256i high = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(second)));
    return {_mm256_blend_epi16(low, _mm256_slli_epi32(high, 16), 0xaa)};
  }
  static QUIRE_INLINE IntVec add(IntVec a, IntVec b) { return {_mm256_add_epi32(a.v, b.v)}; }
  static QUIRE_INLINE IntVec sub(IntVec a, IntVec b) { return {_mm256_sub_epi32(a.v, b.v)}; }
  static QUIRE_INLINE IntVec mul(IntVec a, IntVec b) { return {_mm256_mullo_epi32(a.v, b.v)}; }
  static QUIRE_INLINE Vec to_float(IntVec a) { return {_mm256_cvtepi32_ps(a.v)}; }
  static QUIRE_INLINE IntVec in_order(IntVec a) {
    asm("" : "+x"(a.v));
    return a;
  }
};

/// Four products of int8 per lane. Magnitudes and signs are separate, so that no pair of products saturates:
/// at most 2 * 127 * 127 of 32767. The magnitudes are those of the weights, which the rows of a tile share.
struct SignedDot {
  using Vec = avx2::Vec;
  using Sum = IntVec;
  static constexpr bool kShifted = false;
  static constexpr size_t kTemporaries = 2;
  static QUIRE_INLINE IntVec multiply_add(IntVec sum, IntVec w, IntVec x) {
    const __m256i pairs = _mm256_maddubs_epi16(_mm256_abs_epi8(w.v), _mm256_sign_epi8(x.v, w.v));
    return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)))};
  }
};

/// See attention_integers.h. Magnitudes and signs are taken of keys, which the rows share.
struct AttentionDot {
  using Vec = avx2::Vec;
  using Sum = IntVec;
  static constexpr bool kShifted = false;
  static constexpr size_t key_tiles(size_t rows) { return rows == 1 ? 2 : 1; }
  static QUIRE_INLINE IntVec of_keys(IntVec bytes) { return bytes; }
  static QUIRE_INLINE IntVec multiply_add(IntVec sum, IntVec query, IntVec keys) {
    return SignedDot::multiply_add(sum, keys, query);
  }
  static QUIRE_INLINE IntVec multiply_pairs(IntVec sum, IntVec a, IntVec b) {
    return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(a.v, b.v))};
  }
};

/// Marks the rows of int4, which have 128 added.
struct Int4Dot {
  using Vec = avx2::Vec;
  using Sum = IntVec;
  static constexpr bool kShifted = true;
};

/// See int4_kernels.h. The products of a group stay in 16 bits, two numbers a lane: at most 16 products of
/// 255 and -8 each, 32640 in magnitude. So they take half of the instructions that products of two int8 take.
struct Int4 {
  static constexpr size_t kVectors = 1;
  static constexpr size_t kPrefetch = 4096;
  static constexpr size_t kPlaces = 0;
  static constexpr bool kExpands = false;
  static constexpr size_t kScaledRows = 0;
  static QUIRE_INLINE IntVec low(IntVec both) {
    return {_mm256_sub_epi8(_mm256_and_si256(both.v, _mm256_set1_epi8(0x0f)), _mm256_set1_epi8(8))};
  }
  static QUIRE_INLINE IntVec high(IntVec both) { return low({_mm256_srli_epi16(both.v, 4)}); }
  /// Each twice, in 16 bits.
  static QUIRE_INLINE IntVec scales(const int8_t* from) {
    const __m256i words = _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)));
    return {
        _mm256_or_si256(_mm256_and_si256(words, _mm256_set1_epi32(0xffff)), _mm256_slli_epi32(words, 16))};
  }
  template <class Kernel>
  static QUIRE_INLINE IntVec multiply_add(IntVec dots, IntVec w, IntVec x) {
    return IntVec::in_order({_mm256_add_epi16(dots.v, _mm256_maddubs_epi16(x.v, w.v))});
  }
  static QUIRE_INLINE IntVec add_scaled(IntVec sum, IntVec dots, IntVec scales) {
    return {_mm256_add_epi32(sum.v, _mm256_madd_epi16(dots.v, scales.v))};
  }
};

/// Stored formats: how kLanes elements are read into a Vec and written from one.
struct F32 {
  using Element = float;
  static QUIRE_INLINE Vec load(const float* p) { return Vec::load(p); }
  static QUIRE_INLINE Vec load(const float* p, size_t count) { return Vec::load(p, count); }
  static QUIRE_INLINE void store(float* p, Vec a) { Vec::store(p, a); }
  static QUIRE_INLINE void store(float* p, Vec a, size_t count) { Vec::store(p, a, count); }
};

/// The two 16-bit formats share the handling of partial vectors, for which AVX2 has no masks.
template <class Format>
struct Narrow {
  using Element = uint16_t;
  static QUIRE_INLINE Vec load(const uint16_t* p) {
    return Format::widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  }
  static QUIRE_INLINE Vec load(const uint16_t* p, size_t count) {
    alignas(16) uint16_t part[Vec::kLanes] = {};
    for (size_t i = 0; i < count; ++i) part[i] = p[i];
    return Format::widen(_mm_load_si128(reinterpret_cast<const __m128i*>(part)));
  }
  static QUIRE_INLINE void store(uint16_t* p, Vec a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), Format::narrow(a));
  }
  static QUIRE_INLINE void store(uint16_t* p, Vec a, size_t count) {
    alignas(16) uint16_t part[Vec::kLanes];
    _mm_store_si128(reinterpret_cast<__m128i*>(part), Format::narrow(a));
    for (size_t i = 0; i < count; ++i) p[i] = part[i];
  }
};

struct F16 : Narrow<F16> {
  static QUIRE_INLINE Vec widen(__m128i bits) { return {_mm256_cvtph_ps(bits)}; }
  static QUIRE_INLINE __m128i narrow(Vec a) {
    return _mm256_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

struct Bf16 : Narrow<Bf16> {
  static QUIRE_INLINE Vec widen(__m128i bits) {
    return {_mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16))};
  }
  static QUIRE_INLINE __m128i narrow(Vec a) {
    const __m256i bits = _mm256_castps_si256(a.v);
    const __m256i top = _mm256_srli_epi32(bits, 16);
    const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
    const __m256i carry = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
    const __m256i rounded = _mm256_srli_epi32(_mm256_add_epi32(bits, carry), 16);
    const __m256i quiet_nan = _mm256_or_si256(top, _mm256_set1_epi32(0x40));
    const __m256i is_nan = _mm256_castps_si256(_mm256_cmp_ps(a.v, a.v, _CMP_UNORD_Q));
    const __m256i words = _mm256_blendv_epi8(rounded, quiet_nan, is_nan);
    return _mm_packus_epi32(_mm256_castsi256_si128(words), _mm256_extracti128_si256(words, 1));
  }
};

/// Integers, whose scales are applied elsewhere.
struct I8 {
  static QUIRE_INLINE Vec load(const int8_t* p) {
    return {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))))};
  }
};

/// kLanes pairs of bf16 as stored in a panel: the first or the second of each, widened.
struct Bf16Pairs {
  static QUIRE_INLINE __m256i bits(const uint16_t* p) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  }
  static QUIRE_INLINE __m256i bits(const uint16_t* p, size_t count) {
    return _mm256_maskload_epi32(reinterpret_cast<const int*>(p), Vec::mask(count));
  }
  static QUIRE_INLINE Vec lower(__m256i bits) { return {_mm256_castsi256_ps(_mm256_slli_epi32(bits, 16))}; }
  static QUIRE_INLINE Vec upper(__m256i bits) {
    const __m256i mask = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    return {_mm256_castsi256_ps(_mm256_and_si256(bits, mask))};
  }
  static QUIRE_INLINE Vec first(const uint16_t* p) { return lower(bits(p)); }
  static QUIRE_INLINE Vec second(const uint16_t* p) { return upper(bits(p)); }
  // Of the first `count` pairs.
  static QUIRE_INLINE Vec first(const uint16_t* p, size_t count) { return lower(bits(p, count)); }
  static QUIRE_INLINE Vec second(const uint16_t* p, size_t count) { return upper(bits(p, count)); }
};

static_assert(VecType<Vec> && IntVecType<IntVec, Vec>);
static_assert(StoredFormat<F32, Vec> && StoredFormat<F16, Vec> && StoredFormat<Bf16, Vec>);

}  // namespace quire::kernels::cpu::avx2
