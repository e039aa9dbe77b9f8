#pragma once

#include "tests/levels_anywhere/instructions/registers.h"

// Sixteen f32 lanes, or eight f64 lanes.

QUIRE_EMULATED __m512 _mm512_setzero_ps() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
QUIRE_EMULATED __m512d _mm512_setzero_pd() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
QUIRE_EMULATED __m512 _mm512_set1_ps(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
QUIRE_EMULATED __m512 _mm512_loadu_ps(const void* from) {
  const auto* lanes = static_cast<const float*>(from);
  return {_mm256_loadu_ps(lanes), _mm256_loadu_ps(lanes + 8)};
}
QUIRE_EMULATED void _mm512_storeu_ps(void* to, __m512 a) {
  auto* lanes = static_cast<float*>(to);
  _mm256_storeu_ps(lanes, a.low);
  _mm256_storeu_ps(lanes + 8, a.high);
}
QUIRE_EMULATED void _mm512_stream_ps(float* to, __m512 a) {
  _mm256_stream_ps(to, a.low);
  _mm256_stream_ps(to + 8, a.high);
}

QUIRE_OF_TWO(__m512, _mm512_add_ps, _mm256_add_ps)
QUIRE_OF_TWO(__m512, _mm512_sub_ps, _mm256_sub_ps)
QUIRE_OF_TWO(__m512, _mm512_mul_ps, _mm256_mul_ps)
QUIRE_OF_TWO(__m512, _mm512_div_ps, _mm256_div_ps)
QUIRE_OF_TWO(__m512, _mm512_max_ps, _mm256_max_ps)
QUIRE_OF_TWO(__m512, _mm512_min_ps, _mm256_min_ps)
QUIRE_OF_TWO(__m512, _mm512_and_ps, _mm256_and_ps)
QUIRE_OF_TWO(__m512, _mm512_or_ps, _mm256_or_ps)
QUIRE_OF_THREE(__m512, _mm512_fmadd_ps, _mm256_fmadd_ps)
QUIRE_OF_THREE(__m512, _mm512_fnmadd_ps, _mm256_fnmadd_ps)
QUIRE_OF_TWO(__m512d, _mm512_add_pd, _mm256_add_pd)
QUIRE_OF_TWO(__m512d, _mm512_mul_pd, _mm256_mul_pd)
QUIRE_OF_TWO(__m512d, _mm512_div_pd, _mm256_div_pd)

QUIRE_FROM(__m512, __m512i, _mm512_castps_si512, _mm256_castps_si256)
QUIRE_FROM(__m512i, __m512, _mm512_castsi512_ps, _mm256_castsi256_ps)
QUIRE_FROM(__m512, __m512d, _mm512_castps_pd, _mm256_castps_pd)
QUIRE_FROM(__m512d, __m512, _mm512_castpd_ps, _mm256_castpd_ps)
QUIRE_FROM(__m512i, __m512, _mm512_cvtepi32_ps, _mm256_cvtepi32_ps)
QUIRE_FROM(__m512, __m512i, _mm512_cvtps_epi32, _mm256_cvtps_epi32)

QUIRE_EMULATED __m256 _mm512_castps512_ps256(__m512 a) { return a.low; }
// What the upper half is the manual leaves open: nothing that should be used.
QUIRE_EMULATED __m512 _mm512_castps256_ps512(__m256 a) { return {a, _mm256_set1_ps(__builtin_nanf(""))}; }
QUIRE_EMULATED __m256d _mm512_extractf64x4_pd(__m512d a, int half) {
  return (half & 1) == 0 ? a.low : a.high;
}
QUIRE_EMULATED __m512d _mm512_insertf64x4(__m512d a, __m256d half, int place) {
  return (place & 1) == 0 ? __m512d{half, a.high} : __m512d{a.low, half};
}
QUIRE_CALLED __m512 _mm512_permutex2var_ps(__m512 a, __m512i index, __m512 b) {
  float lanes[32];
  _mm512_storeu_ps(lanes, a);
  _mm512_storeu_ps(lanes + 16, b);
  const __m256i five_bits = _mm256_set1_epi32(31);
  return {_mm256_i32gather_ps(lanes, _mm256_and_si256(index.low, five_bits), sizeof(float)),
          _mm256_i32gather_ps(lanes, _mm256_and_si256(index.high, five_bits), sizeof(float))};
}
QUIRE_EMULATED float _mm512_cvtss_f32(__m512 a) { return _mm256_cvtss_f32(a.low); }

QUIRE_EMULATED __m512d _mm512_cvtps_pd(__m256 a) {
  return {_mm256_cvtps_pd(_mm256_castps256_ps128(a)), _mm256_cvtps_pd(_mm256_extractf128_ps(a, 1))};
}
QUIRE_EMULATED __m256 _mm512_cvtpd_ps(__m512d a) {
  return _mm256_insertf128_ps(_mm256_castps128_ps256(_mm256_cvtpd_ps(a.low)), _mm256_cvtpd_ps(a.high), 1);
}
QUIRE_EMULATED __m512 _mm512_cvtph_ps(__m256i a) {
  return {_mm256_cvtph_ps(_mm256_castsi256_si128(a)), _mm256_cvtph_ps(quire_upper(a))};
}
QUIRE_EMULATED __m256i _mm512_cvtps_ph(__m512 a, int rounding) {
  return quire_join(_mm256_cvtps_ph(a.low, rounding & 7), _mm256_cvtps_ph(a.high, rounding & 7));
}
// The upper half of `control` is how many bits behind the point are kept: the kernels keep none.
QUIRE_EMULATED __m512 _mm512_roundscale_ps(__m512 a, int control) {
  return {_mm256_round_ps(a.low, control & 15), _mm256_round_ps(a.high, control & 15)};
}

QUIRE_EMULATED __mmask16 _mm512_cmp_ps_mask(__m512 a, __m512 b, int predicate) {
  const int low = _mm256_movemask_ps(_mm256_cmp_ps(a.low, b.low, predicate));
  return static_cast<__mmask16>(low | _mm256_movemask_ps(_mm256_cmp_ps(a.high, b.high, predicate)) << 8);
}
QUIRE_EMULATED __m512 _mm512_mask_blend_ps(__mmask16 mask, __m512 zero, __m512 one) {
  return {_mm256_blendv_ps(zero.low, one.low, _mm256_castsi256_ps(quire_lanes32(mask & 0xffU))),
          _mm256_blendv_ps(zero.high, one.high, _mm256_castsi256_ps(quire_lanes32(mask >> 8U)))};
}

// Four lanes of VSCALEFPS: a * 2^floor(b), rounded once. In f64 the product is exact for every f32 and |b| up
// to 600, beyond which f32 has infinity or zero for all a.
QUIRE_CALLED __m128 quire_scalef(__m128 a, __m128 b) {
  const __m128 most = _mm_set1_ps(600.0F);
  const __m128 least = _mm_set1_ps(-600.0F);
  const __m128i power = _mm_cvtps_epi32(_mm_floor_ps(_mm_max_ps(_mm_min_ps(b, most), least)));
  const __m256i exponent =
      _mm256_slli_epi64(_mm256_cvtepi32_epi64(_mm_add_epi32(power, _mm_set1_epi32(1023))), 52);
  __m256d factor = _mm256_castsi256_pd(exponent);
  const __m256d wide = _mm256_cvtps_pd(b);
  const __m256d infinity = _mm256_set1_pd(__builtin_inf());
  // Times infinity or zero, which gives the manual's NaNs of 0 * 2^infinity and infinity * 2^-infinity.
  factor = _mm256_blendv_pd(factor, infinity, _mm256_cmp_pd(wide, infinity, _CMP_EQ_OQ));
  factor = _mm256_blendv_pd(factor, _mm256_setzero_pd(),
                            _mm256_cmp_pd(wide, _mm256_set1_pd(-__builtin_inf()), _CMP_EQ_OQ));
  factor = _mm256_blendv_pd(factor, wide, _mm256_cmp_pd(wide, wide, _CMP_UNORD_Q));
  const __m128 product = _mm256_cvtpd_ps(_mm256_mul_pd(_mm256_cvtps_pd(a), factor));
  // A quiet NaN times 2^infinity is infinity, and times 2^-infinity zero.
  const __m128 size = _mm_andnot_ps(_mm_set1_ps(-0.0F), b);
  const __m128 infinite = _mm_cmpeq_ps(size, _mm_set1_ps(__builtin_inff()));
  const __m128 quiet = _mm_castsi128_ps(_mm_slli_epi32(_mm_castps_si128(a), 9));  // its bit as the sign
  const __m128 instead = _mm_and_ps(_mm_and_ps(_mm_cmpunord_ps(a, a), infinite), quiet);
  return _mm_blendv_ps(product, _mm_max_ps(b, _mm_setzero_ps()), instead);
}
QUIRE_CALLED __m256 quire_scalef(__m256 a, __m256 b) {
  const __m128 low = quire_scalef(_mm256_castps256_ps128(a), _mm256_castps256_ps128(b));
  const __m128 high = quire_scalef(_mm256_extractf128_ps(a, 1), _mm256_extractf128_ps(b, 1));
  return _mm256_insertf128_ps(_mm256_castps128_ps256(low), high, 1);
}
QUIRE_OF_TWO(__m512, _mm512_scalef_ps, quire_scalef)
