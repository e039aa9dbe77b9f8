#pragma once

#include "tests/levels_anywhere/instructions/float_lanes.h"
#include "tests/levels_anywhere/instructions/integer_lanes.h"

// The dot products of VNNI and of bf16.

// VPDPBUSD: four products of unsigned and signed bytes, added without saturation.
QUIRE_CALLED __m256i quire_dpbusd(__m256i sum, __m256i a, __m256i b) {
  const __m256i even = _mm256_madd_epi16(_mm256_and_si256(a, _mm256_set1_epi16(0xff)),
                                         _mm256_srai_epi16(_mm256_slli_epi16(b, 8), 8));
  const __m256i odd = _mm256_madd_epi16(_mm256_srli_epi16(a, 8), _mm256_srai_epi16(b, 8));
  return _mm256_add_epi32(sum, _mm256_add_epi32(even, odd));
}
QUIRE_OF_THREE(__m512i, _mm512_dpbusd_epi32, quire_dpbusd)
QUIRE_EMULATED __m256i _mm256_dpbusd_avx_epi32(__m256i sum, __m256i a, __m256i b) {
  return quire_dpbusd(sum, a, b);
}

// VPDPWSSD: two products of i16, added without saturation.
QUIRE_EMULATED __m256i _mm256_dpwssd_avx_epi32(__m256i sum, __m256i a, __m256i b) {
  return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
QUIRE_OF_THREE(__m512i, _mm512_dpwssd_epi32, _mm256_dpwssd_avx_epi32)

// The operands of VDPBF16PS as f32, a half of a register at a time.
QUIRE_EMULATED __m256 quire_even_bf16(__m256i a) { return _mm256_castsi256_ps(_mm256_slli_epi32(a, 16)); }
QUIRE_EMULATED __m256 quire_odd_bf16(__m256i a) {
  return _mm256_castsi256_ps(_mm256_and_si256(a, _mm256_set1_epi32(static_cast<int>(0xffff0000U))));
}

// VDPBF16PS: to each f32 lane the product of the odd elements is added, then that of the even ones, each with
// one rounding to nearest even. Subnormals are zero, as operands, as sums and as results, whatever MXCSR
// says: here it says so meanwhile.
QUIRE_CALLED void quire_dpbf16_flushing(__m256& sum, __m256i a, __m256i b) {
  const unsigned flushing = 0x9fc0;  // denormals are zeros, flush to zero, round to nearest, no exceptions
  unsigned before = 0;
  asm("stmxcsr %[before]\n\t"
      "ldmxcsr %[flushing]\n\t"
      "vfmadd231ps %[a1], %[b1], %[sum]\n\t"
      "vfmadd231ps %[a0], %[b0], %[sum]\n\t"
      "ldmxcsr %[before]"
      : [sum] "+x"(sum), [before] "+m"(before)
      : [flushing] "m"(flushing), [a0] "x"(quire_even_bf16(a)), [b0] "x"(quire_even_bf16(b)),
        [a1] "x"(quire_odd_bf16(a)), [b1] "x"(quire_odd_bf16(b)));
}

// Twice a magnitude less one: the greatest of all for zero, and small for subnormals and the least normal
// number, to which a result can be rounded that should have been flushed.
QUIRE_EMULATED __m256i quire_size_bf16(__m256i a) {
  return _mm256_sub_epi16(_mm256_add_epi16(a, a), _mm256_set1_epi16(1));
}
QUIRE_EMULATED __m256i quire_size_f32(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  return _mm256_sub_epi32(_mm256_add_epi32(bits, bits), _mm256_set1_epi32(1));
}

// The same in a tenth of the time where nothing is subnormal.
QUIRE_CALLED __m256 quire_dpbf16(__m256 sum, __m256i a, __m256i b) {
  const __m256 first = _mm256_fmadd_ps(quire_odd_bf16(a), quire_odd_bf16(b), sum);
  const __m256 result = _mm256_fmadd_ps(quire_even_bf16(a), quire_even_bf16(b), first);
  const __m256i least16 = _mm256_min_epu16(quire_size_bf16(a), quire_size_bf16(b));
  const __m256i least32 =
      _mm256_min_epu32(_mm256_min_epu32(quire_size_f32(sum), quire_size_f32(first)), quire_size_f32(result));
  const __m256i none = _mm256_setzero_si256();
  const __m256i small = _mm256_or_si256(_mm256_cmpeq_epi16(_mm256_srli_epi16(least16, 8), none),
                                        _mm256_cmpeq_epi32(_mm256_srli_epi32(least32, 24), none));
  if (__builtin_expect(_mm256_testz_si256(small, small) != 0, 1)) return result;
  quire_dpbf16_flushing(sum, a, b);
  return sum;
}
QUIRE_EMULATED __m512 _mm512_dpbf16_ps(__m512 sum, __m512bh a, __m512bh b) {
  return {quire_dpbf16(sum.low, a.low, b.low), quire_dpbf16(sum.high, a.high, b.high)};
}

// VCVTNEPS2BF16: to the nearest, halves to even; subnormals become zero, NaN stays NaN and becomes quiet.
QUIRE_CALLED __m128i quire_to_bf16(__m256 a) {
  const __m256i bits = _mm256_castps_si256(a);
  const __m256i top = _mm256_srli_epi32(bits, 16);
  const __m256i exponent = _mm256_and_si256(bits, _mm256_set1_epi32(0x7f800000));
  const __m256i is_small = _mm256_cmpeq_epi32(exponent, _mm256_setzero_si256());
  const __m256i odd = _mm256_and_si256(top, _mm256_set1_epi32(1));
  const __m256i carry = _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff));
  __m256i words = _mm256_srli_epi32(_mm256_add_epi32(bits, carry), 16);
  words = _mm256_blendv_epi8(words, _mm256_and_si256(top, _mm256_set1_epi32(0x8000)), is_small);
  words = _mm256_blendv_epi8(words, _mm256_or_si256(top, _mm256_set1_epi32(0x40)),
                             _mm256_castps_si256(_mm256_cmp_ps(a, a, _CMP_UNORD_Q)));
  return _mm_packus_epi32(_mm256_castsi256_si128(words), quire_upper(words));
}
QUIRE_EMULATED __m256bh _mm512_cvtneps_pbh(__m512 a) {
  return quire_join(quire_to_bf16(a.low), quire_to_bf16(a.high));
}
QUIRE_EMULATED __m512bh _mm512_cvtne2ps_pbh(__m512 upper, __m512 lower) {
  return {_mm512_cvtneps_pbh(lower), _mm512_cvtneps_pbh(upper)};
}
