#pragma once

#include "tests/levels_anywhere/instructions/float_lanes.h"
#include "tests/levels_anywhere/instructions/integer_lanes.h"

// Loads and stores under a mask. No byte behind a zero of the mask is accessed: lanes of 32 bits by AVX2's
// masked moves, narrower ones one by one.

QUIRE_EMULATED __m512i _mm512_maskz_loadu_epi32(__mmask16 mask, const void* from) {
  const auto* lanes = static_cast<const int*>(from);
  return {_mm256_maskload_epi32(lanes, quire_lanes32(mask & 0xffU)),
          _mm256_maskload_epi32(lanes + 8, quire_lanes32(mask >> 8U))};
}
QUIRE_EMULATED void _mm512_mask_storeu_epi32(void* to, __mmask16 mask, __m512i a) {
  auto* lanes = static_cast<int*>(to);
  _mm256_maskstore_epi32(lanes, quire_lanes32(mask & 0xffU), a.low);
  _mm256_maskstore_epi32(lanes + 8, quire_lanes32(mask >> 8U), a.high);
}
QUIRE_EMULATED __m512 _mm512_maskz_loadu_ps(__mmask16 mask, const void* from) {
  return _mm512_castsi512_ps(_mm512_maskz_loadu_epi32(mask, from));
}
QUIRE_EMULATED void _mm512_mask_storeu_ps(void* to, __mmask16 mask, __m512 a) {
  _mm512_mask_storeu_epi32(to, mask, _mm512_castps_si512(a));
}

// `count` lanes of `bytes` bytes each.
QUIRE_CALLED void quire_copy_lanes(void* to, const void* from, uint64_t mask, unsigned count,
                                   unsigned bytes) {
  for (unsigned i = 0; i < count; ++i) {
    if ((mask >> i & 1U) == 0) continue;
    __builtin_memcpy(static_cast<char*>(to) + i * bytes, static_cast<const char*>(from) + i * bytes, bytes);
  }
}
QUIRE_EMULATED __m128i _mm_maskz_loadu_epi8(__mmask16 mask, const void* from) {
  __m128i lanes = _mm_setzero_si128();
  quire_copy_lanes(&lanes, from, mask, 16, 1);
  return lanes;
}
QUIRE_EMULATED __m256i _mm256_maskz_loadu_epi16(__mmask16 mask, const void* from) {
  __m256i lanes = _mm256_setzero_si256();
  quire_copy_lanes(&lanes, from, mask, 16, 2);
  return lanes;
}
QUIRE_EMULATED void _mm256_mask_storeu_epi16(void* to, __mmask16 mask, __m256i a) {
  quire_copy_lanes(to, &a, mask, 16, 2);
}
QUIRE_EMULATED __m512i _mm512_maskz_loadu_epi16(__mmask32 mask, const void* from) {
  // The upper halves of words: their lower halves are mapped too, and by lanes it would take the inner loop
  // of a matmul twenty times as long.
  if (mask == 0xaaaaaaaaU) {
    const __m512i upper = _mm512_set1_epi32(static_cast<int>(0xffff0000U));
    return _mm512_and_si512(_mm512_loadu_si512(from), upper);
  }
  __m512i lanes = _mm512_setzero_si512();
  quire_copy_lanes(&lanes, from, mask, 32, 2);
  return lanes;
}
