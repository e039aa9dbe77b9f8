#pragma once

#include <cstddef>
#include <cstdint>
#include <immintrin.h>

#include "kernels/cpu/x86/vec.h"

namespace quire::kernels::cpu::avx512 {

/// Sixteen f32 lanes.
struct Vec {
  static constexpr size_t kLanes = 16;
  static constexpr size_t kRegisters = 32;
  static constexpr size_t kAttentionRows = 6;
  static constexpr size_t kAttentionVectors = 4;

  __m512 v;

  static QUIRE_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
  static QUIRE_INLINE Vec set1(float x) { return {_mm512_set1_ps(x)}; }
  static QUIRE_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
  static QUIRE_INLINE void store(float* p, Vec a) { _mm512_storeu_ps(p, a.v); }
  /// Past the caches: p is aligned, and a fence orders it.
  static QUIRE_INLINE void stream(float* p, Vec a) { _mm512_stream_ps(p, a.v); }

  static QUIRE_INLINE __mmask16 mask(size_t count) { return static_cast<__mmask16>((1U << count) - 1U); }
  static QUIRE_INLINE Vec load(const float* p, size_t count) {
    return {_mm512_maskz_loadu_ps(mask(count), p)};
  }
  static QUIRE_INLINE void store(float* p, Vec a, size_t count) {
    _mm512_mask_storeu_ps(p, mask(count), a.v);
  }

  static QUIRE_INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
  static QUIRE_INLINE Vec fnma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
  static QUIRE_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec min(Vec a, Vec b) { return {_mm512_min_ps(a.v, b.v)}; }
  static QUIRE_INLINE Vec round(Vec a) {
    return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
  }
  static QUIRE_INLINE Vec select_less(Vec a, Vec b, Vec yes, Vec no) {
    return {_mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ), no.v, yes.v)};
  }
  /// A bit for each lane where a < b.
  static QUIRE_INLINE uint32_t less(Vec a, Vec b) { return _mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ); }
  static QUIRE_INLINE Vec with_sign_of(Vec a, Vec sign) {
    return {_mm512_or_ps(a.v, _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0F)))};
  }
  static QUIRE_INLINE Vec select_range(Vec a, Vec other, int offset, int begin, int end) {
    const uint32_t up_to_end = end - offset >= 16 ? 0xffffU : (1U << (end > offset ? end - offset : 0)) - 1U;
    const uint32_t up_to_begin =
        begin - offset >= 16 ? 0xffffU : (1U << (begin > offset ? begin - offset : 0)) - 1U;
    return {_mm512_mask_blend_ps(static_cast<__mmask16>(up_to_end & ~up_to_begin), other.v, a.v)};
  }
  static QUIRE_INLINE Vec scale_by_pow2(Vec a, Vec n) { return {_mm512_scalef_ps(a.v, n.v)}; }
  static constexpr float kLeastExponent = -104.5F;
  static QUIRE_INLINE Vec scale_down(Vec a, Vec n) { return scale_by_pow2(a, n); }
  static QUIRE_INLINE Vec add_exponent(Vec a, Vec n) {
    const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(n.v), 23);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), exponent))};
  }
  /// What the lowest five bits of `index` choose.
  static QUIRE_INLINE Vec of_table(const uint32_t (&table)[32], Vec index) {
    const __m512 low = _mm512_castsi512_ps(_mm512_loadu_si512(table));
    const __m512 high = _mm512_castsi512_ps(_mm512_loadu_si512(table + kLanes));
    return {_mm512_permutex2var_ps(low, _mm512_castps_si512(index.v), high)};
  }
  /// With `index` in 32nds: its integer added to the exponent, and its lowest five bits 18 bits further up.
  static QUIRE_INLINE Vec add_32nds(Vec a, Vec index) {
    const __m512i bits = _mm512_slli_epi32(_mm512_castps_si512(index.v), 18);
    return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(a.v), bits))};
  }
  static QUIRE_INLINE void store_int8(int8_t* p, Vec a) {
    _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
  }
  static QUIRE_INLINE void store_int16(int16_t* p, Vec a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), _mm512_cvtepi32_epi16(_mm512_cvtps_epi32(a.v)));
  }
  static QUIRE_INLINE __m256 upper_half(__m512 a) {
    return _mm256_castpd_ps(_mm512_extractf64x4_pd(_mm512_castps_pd(a), 1));
  }
  static QUIRE_INLINE float first_lane(Vec a) { return _mm512_cvtss_f32(a.v); }
  static QUIRE_INLINE float sum(Vec a) {
    const __m256 h = _mm256_add_ps(_mm512_castps512_ps256(a.v), upper_half(a.v));
    __m128 s = _mm_add_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
    s = _mm_add_ps(s, _mm_movehl_ps(s, s));
    return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
  }
  static QUIRE_INLINE float max_lane(Vec a) {
    const __m256 h = _mm256_max_ps(_mm512_castps512_ps256(a.v), upper_half(a.v));
    __m128 s = _mm_max_ps(_mm256_castps256_ps128(h), _mm256_extractf128_ps(h, 1));
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
    __m512i eights[8];  // of the rows i and i + 4
    for (size_t i = 0; i < 8; ++i) {
      const size_t row = i % 4 + i / 4 * 8;
      const __m512i a = _mm512_castps_si512(rows[row].v);
      const __m512i b = _mm512_castps_si512(rows[row + 4].v);
      eights[i] = of(both, _mm512_shuffle_i32x4(a, b, 0x44), _mm512_shuffle_i32x4(a, b, 0xee));
    }
    __m512i fours[4];  // of the rows i, i + 4, i + 8 and i + 12
    for (size_t i = 0; i < 4; ++i) {
      fours[i] = of(both, _mm512_shuffle_i32x4(eights[i], eights[i + 4], 0x88),
                    _mm512_shuffle_i32x4(eights[i], eights[i + 4], 0xdd));
    }
    __m512i twos[2];
    for (size_t i = 0; i < 2; ++i) {
      twos[i] = of(both, _mm512_unpacklo_epi64(fours[i], fours[i + 2]),
                   _mm512_unpackhi_epi64(fours[i], fours[i + 2]));
    }
    const __m512i low = _mm512_unpacklo_epi32(twos[0], twos[1]);
    const __m512i high = _mm512_unpackhi_epi32(twos[0], twos[1]);
    return {
        _mm512_castsi512_ps(of(both, _mm512_unpacklo_epi64(low, high), _mm512_unpackhi_epi64(low, high)))};
  }
  template <class Operation>
  static QUIRE_INLINE __m512i of(const Operation& both, __m512i a, __m512i b) {
    return _mm512_castps_si512(both({_mm512_castsi512_ps(a)}, {_mm512_castsi512_ps(b)}).v);
  }
};

/// Sixteen i32 lanes.
struct IntVec {
  __m512i v;

  static QUIRE_INLINE IntVec zero() { return {_mm512_setzero_si512()}; }
  static QUIRE_INLINE IntVec load(const float* p) { return {_mm512_loadu_si512(p)}; }
  static QUIRE_INLINE IntVec load(const float* p, size_t count) {
    return {_mm512_maskz_loadu_epi32(Vec::mask(count), p)};
  }
  static QUIRE_INLINE void store(float* p, IntVec a) { _mm512_storeu_si512(p, a.v); }
  static QUIRE_INLINE void store(float* p, IntVec a, size_t count) {
    _mm512_mask_storeu_epi32(p, Vec::mask(count), a.v);
  }
  static QUIRE_INLINE IntVec set4(const uint8_t* p) {
    int four = 0;
    __builtin_memcpy(&four, p, sizeof four);
    return {_mm512_set1_epi32(four)};
  }
  static QUIRE_INLINE IntVec load_pairs(const int8_t* first, const int8_t* second) {
    const __m512i low = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(first)));
    const __m512i high = _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(second)));
    return {_mm512_mask_blend_epi16(0xaaaaaaaaU, low, _mm512_slli_epi32(high, 16))};
  }
  static QUIRE_INLINE IntVec add(IntVec a, IntVec b) { return {_mm512_add_epi32(a.v, b.v)}; }
  static QUIRE_INLINE IntVec sub(IntVec a, IntVec b) { return {_mm512_sub_epi32(a.v, b.v)}; }
  static QUIRE_INLINE IntVec mul(IntVec a, IntVec b) { return {_mm512_mullo_epi32(a.v, b.v)}; }
  static QUIRE_INLINE Vec to_float(IntVec a) { return {_mm512_cvtepi32_ps(a.v)}; }
  static QUIRE_INLINE IntVec in_order(IntVec a) {
#ifdef __AVX512F__  // not in tests/levels_anywhere
    asm("" : "+v"(a.v));
#endif
    return a;
  }
};

/// See avx2::SignedDot.
struct SignedDot {
  using Vec = avx512::Vec;
  using Sum = IntVec;
  static constexpr bool kShifted = false;
  static constexpr size_t kTemporaries = 4;
  static QUIRE_INLINE IntVec multiply_add(IntVec sum, IntVec w, IntVec x) {
    const __m512i with_sign =
        _mm512_mask_sub_epi8(w.v, _mm512_movepi8_mask(x.v), _mm512_setzero_si512(), w.v);
    const __m512i pairs = _mm512_maddubs_epi16(_mm512_abs_epi8(x.v), with_sign);
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)))};
  }
};

/// See attention_integers.h. Magnitudes and signs are taken of keys, which the rows share.
struct AttentionDot {
  using Vec = avx512::Vec;
  using Sum = IntVec;
  static constexpr bool kShifted = false;
  static constexpr size_t key_tiles(size_t) { return 4; }
  static QUIRE_INLINE IntVec of_keys(IntVec bytes) { return bytes; }
  static QUIRE_INLINE IntVec multiply_add(IntVec sum, IntVec query, IntVec keys) {
    return SignedDot::multiply_add(sum, query, keys);
  }
  static QUIRE_INLINE IntVec multiply_pairs(IntVec sum, IntVec a, IntVec b) {
    return {_mm512_add_epi32(sum.v, _mm512_madd_epi16(a.v, b.v))};
  }
};

/// See int4_kernels.h.
struct Int4 {
  static constexpr size_t kVectors = 2;
  static constexpr size_t kPrefetch = 4096;
  static constexpr size_t kPlaces = 0;
  static constexpr bool kExpands = true;
  static constexpr size_t kScaledRows = 0;
  static QUIRE_INLINE IntVec low(IntVec both) {
    return {_mm512_sub_epi8(_mm512_and_si512(both.v, _mm512_set1_epi8(0x0f)), _mm512_set1_epi8(8))};
  }
  static QUIRE_INLINE IntVec high(IntVec both) { return low({_mm512_srli_epi16(both.v, 4)}); }
  static QUIRE_INLINE IntVec scales(const int8_t* from) {
    return {_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)))};
  }
  template <class Kernel>
  static QUIRE_INLINE IntVec multiply_add(IntVec dots, IntVec w, IntVec x) {
    return Kernel::multiply_add(dots, w, x);
  }
  static QUIRE_INLINE IntVec add_scaled(IntVec sum, IntVec dots, IntVec scales) {
    return IntVec::add(sum, IntVec::mul(dots, scales));
  }
  /// A weight is (q - 8) * scale, or with a negative scale (15 - q - 7) * -scale: in both cases one product
  /// below 256, so that two bytes are multiplied at once, and a number to subtract.
  static QUIRE_INLINE void group(const std::byte* from, int8_t* to) {
    constexpr size_t kStep = 128;
    for (size_t part = 0; part < 2; ++part) {  // sixteen outputs
      const __m512i words =
          _mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from + part * 16)));
      const __m512i negative = _mm512_srai_epi32(words, 31);
      const __m512i size = _mm512_abs_epi32(words);
      const __m512i sizes = _mm512_or_si512(size, _mm512_slli_epi32(size, 16));
      const __m512i bytes = _mm512_or_si512(sizes, _mm512_slli_epi32(sizes, 8));
      const __m512i middle = _mm512_sub_epi8(_mm512_slli_epi32(bytes, 3), _mm512_and_si512(bytes, negative));
      for (size_t pair = 0; pair < 4; ++pair) {
        const __m512i both = _mm512_loadu_si512(from + 32 + pair * kStep + part * 64);
        int8_t* step = to + pair * 2 * kStep + part * 64;
        store(step, both, negative, sizes, middle);
        store(step + kStep, _mm512_srli_epi16(both, 4), negative, sizes, middle);
      }
    }
  }

 private:
  /// Of the lower nibbles.
  static QUIRE_INLINE void store(int8_t* to, __m512i nibbles, __m512i negative, __m512i sizes,
                                 __m512i middle) {
    constexpr int kExclusiveOrThenAnd = 0x28;
    const __m512i q =
        _mm512_ternarylogic_epi32(nibbles, negative, _mm512_set1_epi8(0x0f), kExclusiveOrThenAnd);
    _mm512_storeu_si512(to, _mm512_sub_epi8(_mm512_mullo_epi16(q, sizes), middle));
  }
};

/// Weights that are scaled without a multiplication: VPSHUFB looks up what the lower and the upper two bits
/// of q contribute to (q - 8) * scale. Four outputs share 128 bits, which hold the four products of each.
struct ScaledInt4 : Int4 {
  struct Tables {
    __m512i lower;  // [output][bits]: bits * scale
    __m512i upper;  // [bits][output]: (4 * bits - 8) * scale
  };
  static QUIRE_INLINE Tables tables(const int8_t* from) {
    alignas(64) static constexpr uint32_t kOutputs[16] = {
        0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x04040404, 0x05050505, 0x06060606, 0x07070707,
        0x08080808, 0x09090909, 0x0a0a0a0a, 0x0b0b0b0b, 0x0c0c0c0c, 0x0d0d0d0d, 0x0e0e0e0e, 0x0f0f0f0f};
    alignas(64) static constexpr uint32_t kFourTimes[16] = {
        0x03020100, 0x03020100, 0x03020100, 0x03020100, 0x07060504, 0x07060504, 0x07060504, 0x07060504,
        0x0b0a0908, 0x0b0a0908, 0x0b0a0908, 0x0b0a0908, 0x0f0e0d0c, 0x0f0e0d0c, 0x0f0e0d0c, 0x0f0e0d0c};
    alignas(64) static constexpr int32_t kBitsOdd[16] = {0, -1, 0, -1, 0, -1, 0, -1,
                                                         0, -1, 0, -1, 0, -1, 0, -1};
    alignas(64) static constexpr int32_t kBitsBelowTwo[16] = {-1, -1, 0, 0, -1, -1, 0, 0,
                                                              -1, -1, 0, 0, -1, -1, 0, 0};
    const __m512i scales = _mm512_broadcast_i32x4(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
    const __m512i once = _mm512_shuffle_epi8(scales, _mm512_loadu_si512(kOutputs));
    const __m512i twice = _mm512_add_epi8(once, once);
    const __m512i lower =
        _mm512_add_epi8(_mm512_and_si512(once, _mm512_set1_epi32(static_cast<int>(0xff00ff00))),
                        _mm512_and_si512(twice, _mm512_set1_epi32(static_cast<int>(0xffff0000))));
    const __m512i all = _mm512_shuffle_epi8(scales, _mm512_loadu_si512(kFourTimes));
    const __m512i two = _mm512_add_epi8(all, all);
    const __m512i four = _mm512_add_epi8(two, two);
    const __m512i eight = _mm512_add_epi8(four, four);
    return {lower, _mm512_sub_epi8(_mm512_and_si512(four, _mm512_loadu_si512(kBitsOdd)),
                                   _mm512_and_si512(eight, _mm512_loadu_si512(kBitsBelowTwo)))};
  }
  static QUIRE_INLINE IntVec scaled_low(IntVec both, const Tables& tables) {
    constexpr int kAndThenOr = 0xea;
    alignas(64) static constexpr uint32_t kOutput[16] = {
        0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x00000000, 0x01010101, 0x02020202, 0x03030303,
        0x00000000, 0x01010101, 0x02020202, 0x03030303, 0x00000000, 0x01010101, 0x02020202, 0x03030303};
    const __m512i output = _mm512_loadu_si512(kOutput);
    const __m512i lower =
        _mm512_ternarylogic_epi32(both.v, _mm512_set1_epi8(0x03), _mm512_slli_epi32(output, 2), kAndThenOr);
    const __m512i upper = _mm512_ternarylogic_epi32(both.v, _mm512_set1_epi8(0x0c), output, kAndThenOr);
    return {
        _mm512_add_epi8(_mm512_shuffle_epi8(tables.lower, lower), _mm512_shuffle_epi8(tables.upper, upper))};
  }
  static QUIRE_INLINE IntVec scaled_high(IntVec both, const Tables& tables) {
    return scaled_low({_mm512_srli_epi16(both.v, 4)}, tables);
  }
};

struct F32 {
  using Element = float;
  static QUIRE_INLINE Vec load(const float* p) { return Vec::load(p); }
  static QUIRE_INLINE Vec load(const float* p, size_t count) { return Vec::load(p, count); }
  static QUIRE_INLINE void store(float* p, Vec a) { Vec::store(p, a); }
  static QUIRE_INLINE void store(float* p, Vec a, size_t count) { Vec::store(p, a, count); }
};

template <class Format>
struct Narrow {
  using Element = uint16_t;
  static QUIRE_INLINE Vec load(const uint16_t* p) {
    return Format::widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
  }
  static QUIRE_INLINE Vec load(const uint16_t* p, size_t count) {
    return Format::widen(_mm256_maskz_loadu_epi16(Vec::mask(count), p));
  }
  static QUIRE_INLINE void store(uint16_t* p, Vec a) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), Format::narrow(a));
  }
  static QUIRE_INLINE void store(uint16_t* p, Vec a, size_t count) {
    _mm256_mask_storeu_epi16(p, Vec::mask(count), Format::narrow(a));
  }
};

struct F16 : Narrow<F16> {
  static QUIRE_INLINE Vec widen(__m256i bits) { return {_mm512_cvtph_ps(bits)}; }
  static QUIRE_INLINE __m256i narrow(Vec a) {
    return _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

struct Bf16 : Narrow<Bf16> {
  static QUIRE_INLINE Vec widen(__m256i bits) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
  }
  // In integers even if the machine has VCVTNEPS2BF16, because that instruction flushes subnormals.
  static QUIRE_INLINE __m256i narrow(Vec a) {
    const __m512i bits = _mm512_castps_si512(a.v);
    const __m512i top = _mm512_srli_epi32(bits, 16);
    const __m512i odd = _mm512_and_si512(top, _mm512_set1_epi32(1));
    const __m512i carry = _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff));
    const __m512i rounded = _mm512_srli_epi32(_mm512_add_epi32(bits, carry), 16);
    const __m512i quiet_nan = _mm512_or_si512(top, _mm512_set1_epi32(0x40));
    const __mmask16 is_nan = _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q);
    return _mm512_cvtepi32_epi16(_mm512_mask_blend_epi32(is_nan, rounded, quiet_nan));
  }
};

/// For K/V, whose scales are applied elsewhere.
struct I8 {
  static QUIRE_INLINE Vec load(const int8_t* p) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))))};
  }
  static QUIRE_INLINE Vec load(const int8_t* p, size_t count) {
    return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(Vec::mask(count), p)))};
  }
  /// Of integers, pairs of bf16, which they are exactly.
  static QUIRE_INLINE __m512i bf16_pairs(Vec first, Vec second) {
    return _mm512_or_si512(_mm512_srli_epi32(_mm512_castps_si512(first.v), 16),
                           _mm512_castps_si512(second.v));
  }
};

struct Bf16Pairs {
  static QUIRE_INLINE Vec first(const uint16_t* p) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_loadu_si512(p), 16))};
  }
  static QUIRE_INLINE Vec second(const uint16_t* p) {  // a mask in a vector would need one more register
    return {_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(0xaaaaaaaaU, p))};
  }
  // Of the first `count` pairs.
  static QUIRE_INLINE Vec first(const uint16_t* p, size_t count) {
    return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_maskz_loadu_epi32(Vec::mask(count), p), 16))};
  }
  static QUIRE_INLINE Vec second(const uint16_t* p, size_t count) {
    const auto pairs = static_cast<__mmask32>((uint64_t{1} << 2 * count) - 1);
    return {_mm512_castsi512_ps(_mm512_maskz_loadu_epi16(pairs & 0xaaaaaaaaU, p))};
  }
};

static_assert(VecType<Vec> && IntVecType<IntVec, Vec>);
static_assert(StoredFormat<F32, Vec> && StoredFormat<F16, Vec> && StoredFormat<Bf16, Vec>);

}  // namespace quire::kernels::cpu::avx512
