#pragma once

#include "tests/levels_anywhere/instructions/registers.h"

// Integer lanes of 8, 16 and 32 bits.

QUIRE_EMULATED __m512i _mm512_setzero_si512() { return {_mm256_setzero_si256(), _mm256_setzero_si256()}; }
QUIRE_EMULATED __m512i _mm512_set1_epi8(char x) { return {_mm256_set1_epi8(x), _mm256_set1_epi8(x)}; }
QUIRE_EMULATED __m512i _mm512_set1_epi16(short x) { return {_mm256_set1_epi16(x), _mm256_set1_epi16(x)}; }
QUIRE_EMULATED __m512i _mm512_set1_epi32(int x) { return {_mm256_set1_epi32(x), _mm256_set1_epi32(x)}; }
QUIRE_EMULATED __m512i _mm512_broadcast_i32x4(__m128i a) {
  return {_mm256_broadcastsi128_si256(a), _mm256_broadcastsi128_si256(a)};
}
QUIRE_EMULATED __m512i _mm512_loadu_si512(const void* from) {
  const auto* halves = static_cast<const __m256i*>(from);
  return {_mm256_loadu_si256(halves), _mm256_loadu_si256(halves + 1)};
}
QUIRE_EMULATED void _mm512_storeu_si512(void* to, __m512i a) {
  auto* halves = static_cast<__m256i*>(to);
  _mm256_storeu_si256(halves, a.low);
  _mm256_storeu_si256(halves + 1, a.high);
}

QUIRE_OF_TWO(__m512i, _mm512_and_si512, _mm256_and_si256)
QUIRE_OF_TWO(__m512i, _mm512_or_si512, _mm256_or_si256)
QUIRE_OF_TWO(__m512i, _mm512_add_epi32, _mm256_add_epi32)
QUIRE_OF_TWO(__m512i, _mm512_sub_epi32, _mm256_sub_epi32)
QUIRE_OF_TWO(__m512i, _mm512_add_epi8, _mm256_add_epi8)
QUIRE_OF_TWO(__m512i, _mm512_sub_epi8, _mm256_sub_epi8)
QUIRE_OF_TWO(__m512i, _mm512_shuffle_epi8, _mm256_shuffle_epi8)
QUIRE_OF_TWO(__m512i, _mm512_mullo_epi16, _mm256_mullo_epi16)
QUIRE_OF_TWO(__m512i, _mm512_mullo_epi32, _mm256_mullo_epi32)
QUIRE_OF_TWO(__m512i, _mm512_madd_epi16, _mm256_madd_epi16)
QUIRE_OF_TWO(__m512i, _mm512_maddubs_epi16, _mm256_maddubs_epi16)
QUIRE_OF_TWO(__m512i, _mm512_unpacklo_epi32, _mm256_unpacklo_epi32)
QUIRE_OF_TWO(__m512i, _mm512_unpackhi_epi32, _mm256_unpackhi_epi32)
QUIRE_OF_TWO(__m512i, _mm512_unpacklo_epi64, _mm256_unpacklo_epi64)
QUIRE_OF_TWO(__m512i, _mm512_unpackhi_epi64, _mm256_unpackhi_epi64)
QUIRE_OF_ONE(__m512i, _mm512_abs_epi8, _mm256_abs_epi8)
QUIRE_OF_ONE(__m512i, _mm512_abs_epi32, _mm256_abs_epi32)
QUIRE_BY_COUNT(_mm512_srai_epi32, _mm256_srai_epi32)
QUIRE_BY_COUNT(_mm512_srli_epi16, _mm256_srli_epi16)
QUIRE_BY_COUNT(_mm512_slli_epi32, _mm256_slli_epi32)
QUIRE_BY_COUNT(_mm512_srli_epi32, _mm256_srli_epi32)
QUIRE_EMULATED __m512i _mm512_sll_epi32(__m512i a, __m128i count) {
  return {_mm256_sll_epi32(a.low, count), _mm256_sll_epi32(a.high, count)};
}

// VPTERNLOGD: bit 4 a + 2 b + c of the control, for the bits a, b and c.
QUIRE_CALLED __m256i quire_ternary(__m256i a, __m256i b, __m256i c, int control) {
  const __m256i ones = _mm256_set1_epi32(-1);
  __m256i result = _mm256_setzero_si256();
  for (int which = 0; which < 8; ++which) {
    if ((control >> which & 1) == 0) continue;
    const __m256i is_a = (which & 4) != 0 ? a : _mm256_xor_si256(a, ones);
    const __m256i is_b = (which & 2) != 0 ? b : _mm256_xor_si256(b, ones);
    const __m256i is_c = (which & 1) != 0 ? c : _mm256_xor_si256(c, ones);
    result = _mm256_or_si256(result, _mm256_and_si256(is_a, _mm256_and_si256(is_b, is_c)));
  }
  return result;
}
QUIRE_EMULATED __m512i _mm512_ternarylogic_epi32(__m512i a, __m512i b, __m512i c, int control) {
  return {quire_ternary(a.low, b.low, c.low, control), quire_ternary(a.high, b.high, c.high, control)};
}

// A quarter of a register.
QUIRE_EMULATED __m128i quire_quarter(__m512i a, int index) {
  const __m256i half = (index & 2) == 0 ? a.low : a.high;
  return (index & 1) == 0 ? _mm256_castsi256_si128(half) : quire_upper(half);
}
QUIRE_EMULATED __m512i _mm512_shuffle_i32x4(__m512i a, __m512i b, int control) {
  return {quire_join(quire_quarter(a, control), quire_quarter(a, control >> 2)),
          quire_join(quire_quarter(b, control >> 4), quire_quarter(b, control >> 6))};
}

QUIRE_EMULATED __m512i _mm512_cvtepi8_epi32(__m128i a) {
  return {_mm256_cvtepi8_epi32(a), _mm256_cvtepi8_epi32(_mm_srli_si128(a, 8))};
}
QUIRE_EMULATED __m512i _mm512_cvtepu16_epi32(__m256i a) {
  return {_mm256_cvtepu16_epi32(_mm256_castsi256_si128(a)), _mm256_cvtepu16_epi32(quire_upper(a))};
}
// With signed saturation.
QUIRE_EMULATED __m128i _mm512_cvtsepi32_epi8(__m512i a) {
  const __m128i low = _mm_packs_epi32(_mm256_castsi256_si128(a.low), quire_upper(a.low));
  return _mm_packs_epi16(low, _mm_packs_epi32(_mm256_castsi256_si128(a.high), quire_upper(a.high)));
}
// The lower halves of the lanes.
QUIRE_EMULATED __m256i _mm512_cvtepi32_epi16(__m512i a) {
  const __m256i low = _mm256_set1_epi32(0xffff);
  const __m256i packed = _mm256_packus_epi32(_mm256_and_si256(a.low, low), _mm256_and_si256(a.high, low));
  return _mm256_permute4x64_epi64(packed, 0xd8);
}

QUIRE_CALLED __mmask64 _mm512_movepi8_mask(__m512i a) {
  const auto low = static_cast<uint32_t>(_mm256_movemask_epi8(a.low));
  return low | uint64_t{static_cast<uint32_t>(_mm256_movemask_epi8(a.high))} << 32U;
}
QUIRE_CALLED __m512i _mm512_mask_sub_epi8(__m512i otherwise, __mmask64 mask, __m512i a, __m512i b) {
  const __m512i difference = _mm512_sub_epi8(a, b);
  return {
      _mm256_blendv_epi8(otherwise.low, difference.low, quire_lanes8(static_cast<uint32_t>(mask))),
      _mm256_blendv_epi8(otherwise.high, difference.high, quire_lanes8(static_cast<uint32_t>(mask >> 32U)))};
}
QUIRE_EMULATED __m512i _mm512_mask_blend_epi32(__mmask16 mask, __m512i zero, __m512i one) {
  return {_mm256_blendv_epi8(zero.low, one.low, quire_lanes32(mask & 0xffU)),
          _mm256_blendv_epi8(zero.high, one.high, quire_lanes32(mask >> 8U))};
}
QUIRE_EMULATED __m512i _mm512_mask_blend_epi16(__mmask32 mask, __m512i zero, __m512i one) {
  return {_mm256_blendv_epi8(zero.low, one.low, quire_lanes16(mask & 0xffffU)),
          _mm256_blendv_epi8(zero.high, one.high, quire_lanes16(mask >> 16U))};
}
