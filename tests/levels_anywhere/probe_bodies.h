// For two sources: one with the emulated instructions, one with the compiler's.
#include <immintrin.h>

#include "tests/levels_anywhere/probes.h"

namespace quire::test {
namespace {

__m512 ps(const std::byte* from) { return _mm512_loadu_ps(from); }
__m512i si(const std::byte* from) { return _mm512_loadu_si512(from); }
__m512d pd(const std::byte* from) { return _mm512_castps_pd(ps(from)); }
__m256i half_si(const std::byte* from) { return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)); }
__m256 half_ps(const std::byte* from) { return _mm256_castsi256_ps(half_si(from)); }
__m128i quarter(const std::byte* from) { return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from)); }

void put(std::byte* to, __m512 a) { _mm512_storeu_ps(to, a); }
void put(std::byte* to, __m512d a) { _mm512_storeu_ps(to, _mm512_castpd_ps(a)); }
void put(std::byte* to, __m512i a) { _mm512_storeu_si512(to, a); }
void put(std::byte* to, __m256i a) { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), a); }
void put(std::byte* to, __m256 a) { put(to, _mm256_castps_si256(a)); }
void put(std::byte* to, __m256d a) { put(to, _mm256_castpd_si256(a)); }
void put(std::byte* to, __m128i a) { _mm_storeu_si128(reinterpret_cast<__m128i*>(to), a); }
void put(std::byte* to, uint64_t mask) { __builtin_memcpy(to, &mask, sizeof(mask)); }

int first_int(const std::byte* from) {
  int value = 0;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
float first_float(const std::byte* from) {
  float value = 0;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
__mmask16 mask16(const ProbeOperands& in) { return static_cast<__mmask16>(in.mask); }
__mmask32 mask32(const ProbeOperands& in) { return static_cast<__mmask32>(in.mask); }

// Sums of 1 to 16 rows and columns, over 1 to 16 times four bytes: as the mask says.
template <class Multiply>
void multiply_tiles(const ProbeOperands& in, std::byte* to, Multiply multiply) {
  struct alignas(64) Config {
    uint8_t palette = 1;
    uint8_t rest[15] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
  } config;
  const auto rows = static_cast<uint8_t>(1 + (in.mask & 15));
  const auto inner = static_cast<uint8_t>(1 + (in.mask >> 4 & 15));
  const auto columns = static_cast<uint8_t>(1 + (in.mask >> 8 & 15));
  config.rows[0] = config.rows[1] = rows;
  config.rows[2] = inner;
  config.row_bytes[0] = config.row_bytes[2] = static_cast<uint16_t>(columns * 4);
  config.row_bytes[1] = static_cast<uint16_t>(inner * 4);
  asm volatile("" ::: "memory");  // GCC's intrinsics do not say that they read and write memory
  _tile_loadconfig(&config);
  _tile_zero(0);
  if ((in.mask >> 12 & 1) != 0) _tile_loadd(0, in.c, 64);
  _tile_loadd(1, in.a, 64);
  _tile_stream_loadd(2, in.b, 64);
  multiply();
  _tile_stored(0, to, 64);
  _tile_release();
  asm volatile("" ::: "memory");
}

#define QUIRE_PROBE(name, result)                                                                          \
  {                                                                                                        \
    name, Needs::kAvx512, []([[maybe_unused]] const ProbeOperands& in, std::byte* to) { put(to, result); } \
  }
#define QUIRE_TWO(name, read) QUIRE_PROBE(#name, name(read(in.a), read(in.b)))
#define QUIRE_ONE(name, read) QUIRE_PROBE(#name, name(read(in.a)))
#define QUIRE_COUNT(name)                                                                 \
  QUIRE_PROBE(#name " 0", name(si(in.a), 0)), QUIRE_PROBE(#name " 7", name(si(in.a), 7)), \
      QUIRE_PROBE(#name " 16", name(si(in.a), 16))

constexpr Probe kProbes[] = {
    QUIRE_TWO(_mm512_add_ps, ps),
    QUIRE_TWO(_mm512_sub_ps, ps),
    QUIRE_TWO(_mm512_mul_ps, ps),
    QUIRE_TWO(_mm512_div_ps, ps),
    QUIRE_TWO(_mm512_max_ps, ps),
    QUIRE_TWO(_mm512_min_ps, ps),
    QUIRE_TWO(_mm512_and_ps, ps),
    QUIRE_TWO(_mm512_or_ps, ps),
    QUIRE_TWO(_mm512_scalef_ps, ps),
    QUIRE_TWO(_mm512_add_pd, pd),
    QUIRE_TWO(_mm512_mul_pd, pd),
    QUIRE_TWO(_mm512_div_pd, pd),
    QUIRE_PROBE("_mm512_fmadd_ps", _mm512_fmadd_ps(ps(in.a), ps(in.b), ps(in.c))),
    QUIRE_PROBE("_mm512_fnmadd_ps", _mm512_fnmadd_ps(ps(in.a), ps(in.b), ps(in.c))),
    QUIRE_PROBE("_mm512_setzero_ps", _mm512_setzero_ps()),
    QUIRE_PROBE("_mm512_setzero_pd", _mm512_setzero_pd()),
    QUIRE_PROBE("_mm512_setzero_si512", _mm512_setzero_si512()),
    QUIRE_PROBE("_mm512_set1_ps", _mm512_set1_ps(first_float(in.a))),
    QUIRE_PROBE("_mm512_set1_epi8", _mm512_set1_epi8(static_cast<char>(first_int(in.a)))),
    QUIRE_PROBE("_mm512_set1_epi16", _mm512_set1_epi16(static_cast<short>(first_int(in.a)))),
    QUIRE_PROBE("_mm512_set1_epi32", _mm512_set1_epi32(first_int(in.a))),
    QUIRE_PROBE("_mm512_loadu_ps _mm512_storeu_ps", ps(in.a)),
    QUIRE_PROBE("_mm512_loadu_si512 _mm512_storeu_si512", si(in.a)),
    QUIRE_PROBE("_mm512_castps_pd _mm512_castpd_ps", pd(in.a)),
    QUIRE_PROBE("_mm512_castps_si512", _mm512_castps_si512(ps(in.a))),
    QUIRE_PROBE("_mm512_castsi512_ps", _mm512_castsi512_ps(si(in.a))),
    QUIRE_ONE(_mm512_castps512_ps256, ps),
    QUIRE_PROBE("_mm512_castps256_ps512", _mm512_castps512_ps256(_mm512_castps256_ps512(half_ps(in.a)))),
    QUIRE_PROBE("_mm512_extractf64x4_pd 0", _mm512_extractf64x4_pd(pd(in.a), 0)),
    QUIRE_PROBE("_mm512_extractf64x4_pd 1", _mm512_extractf64x4_pd(pd(in.a), 1)),
    QUIRE_PROBE("_mm512_insertf64x4 0", _mm512_insertf64x4(pd(in.a), _mm256_castps_pd(half_ps(in.b)), 0)),
    QUIRE_PROBE("_mm512_insertf64x4 1", _mm512_insertf64x4(pd(in.a), _mm256_castps_pd(half_ps(in.b)), 1)),
    QUIRE_PROBE("_mm512_cvtss_f32", _mm512_set1_ps(_mm512_cvtss_f32(ps(in.a)))),
    QUIRE_ONE(_mm512_cvtepi32_ps, si),
    QUIRE_ONE(_mm512_cvtps_epi32, ps),
    QUIRE_ONE(_mm512_cvtps_pd, half_ps),
    QUIRE_ONE(_mm512_cvtpd_ps, pd),
    QUIRE_ONE(_mm512_cvtph_ps, half_si),
    QUIRE_PROBE("_mm512_cvtps_ph", _mm512_cvtps_ph(ps(in.a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
    QUIRE_PROBE("_mm512_roundscale_ps",
                _mm512_roundscale_ps(ps(in.a), _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)),
    QUIRE_PROBE("_mm512_cmp_ps_mask <", uint64_t{_mm512_cmp_ps_mask(ps(in.a), ps(in.b), _CMP_LT_OQ)}),
    QUIRE_PROBE("_mm512_cmp_ps_mask NaN", uint64_t{_mm512_cmp_ps_mask(ps(in.a), ps(in.b), _CMP_UNORD_Q)}),
    QUIRE_PROBE("_mm512_mask_blend_ps", _mm512_mask_blend_ps(mask16(in), ps(in.a), ps(in.b))),
    QUIRE_TWO(_mm512_and_si512, si),
    QUIRE_TWO(_mm512_or_si512, si),
    QUIRE_TWO(_mm512_add_epi32, si),
    QUIRE_TWO(_mm512_sub_epi32, si),
    QUIRE_TWO(_mm512_add_epi8, si),
    QUIRE_TWO(_mm512_sub_epi8, si),
    QUIRE_TWO(_mm512_shuffle_epi8, si),
    QUIRE_TWO(_mm512_mullo_epi16, si),
    QUIRE_TWO(_mm512_mullo_epi32, si),
    QUIRE_TWO(_mm512_madd_epi16, si),
    QUIRE_TWO(_mm512_maddubs_epi16, si),
    QUIRE_TWO(_mm512_unpacklo_epi32, si),
    QUIRE_TWO(_mm512_unpackhi_epi32, si),
    QUIRE_TWO(_mm512_unpacklo_epi64, si),
    QUIRE_TWO(_mm512_unpackhi_epi64, si),
    QUIRE_ONE(_mm512_abs_epi8, si),
    QUIRE_ONE(_mm512_abs_epi32, si),
    QUIRE_COUNT(_mm512_srai_epi32),
    QUIRE_PROBE("_mm512_ternarylogic_epi32 0x28",
                _mm512_ternarylogic_epi32(si(in.a), si(in.b), si(in.c), 0x28)),
    QUIRE_PROBE("_mm512_ternarylogic_epi32 0xca",
                _mm512_ternarylogic_epi32(si(in.a), si(in.b), si(in.c), 0xca)),
    QUIRE_PROBE("_mm512_ternarylogic_epi32 0xea",
                _mm512_ternarylogic_epi32(si(in.a), si(in.b), si(in.c), 0xea)),
    QUIRE_COUNT(_mm512_srli_epi16),
    QUIRE_COUNT(_mm512_slli_epi32),
    QUIRE_COUNT(_mm512_srli_epi32),
    QUIRE_PROBE("_mm512_sll_epi32",
                _mm512_sll_epi32(si(in.a), _mm_cvtsi32_si128(static_cast<int>(in.mask & 63)))),
    QUIRE_PROBE("_mm512_shuffle_i32x4 0x44", _mm512_shuffle_i32x4(si(in.a), si(in.b), 0x44)),
    QUIRE_PROBE("_mm512_shuffle_i32x4 0xee", _mm512_shuffle_i32x4(si(in.a), si(in.b), 0xee)),
    QUIRE_PROBE("_mm512_shuffle_i32x4 0x88", _mm512_shuffle_i32x4(si(in.a), si(in.b), 0x88)),
    QUIRE_PROBE("_mm512_shuffle_i32x4 0xdd", _mm512_shuffle_i32x4(si(in.a), si(in.b), 0xdd)),
    QUIRE_PROBE("_mm512_shuffle_i32x4 0x1e", _mm512_shuffle_i32x4(si(in.a), si(in.b), 0x1e)),
    QUIRE_PROBE("_mm512_permutex2var_ps", _mm512_permutex2var_ps(ps(in.a), si(in.b), ps(in.c))),
    QUIRE_ONE(_mm512_broadcast_i32x4, quarter),
    QUIRE_ONE(_mm512_cvtepi8_epi32, quarter),
    QUIRE_ONE(_mm512_cvtepu16_epi32, half_si),
    QUIRE_ONE(_mm512_cvtsepi32_epi8, si),
    QUIRE_ONE(_mm512_cvtepi32_epi16, si),
    QUIRE_PROBE("_mm512_movepi8_mask", uint64_t{_mm512_movepi8_mask(si(in.a))}),
    QUIRE_PROBE("_mm512_mask_sub_epi8", _mm512_mask_sub_epi8(si(in.a), in.mask, si(in.b), si(in.c))),
    QUIRE_PROBE("_mm512_mask_blend_epi32", _mm512_mask_blend_epi32(mask16(in), si(in.a), si(in.b))),
    QUIRE_PROBE("_mm512_mask_blend_epi16", _mm512_mask_blend_epi16(mask32(in), si(in.a), si(in.b))),
    QUIRE_PROBE("_mm512_maskz_loadu_ps", _mm512_maskz_loadu_ps(mask16(in), in.memory)),
    QUIRE_PROBE("_mm512_maskz_loadu_epi32", _mm512_maskz_loadu_epi32(mask16(in), in.memory)),
    QUIRE_PROBE("_mm512_maskz_loadu_epi16", _mm512_maskz_loadu_epi16(mask32(in), in.memory)),
    QUIRE_PROBE("_mm512_maskz_loadu_epi16 odd", _mm512_maskz_loadu_epi16(0xaaaaaaaaU, in.a)),
    QUIRE_PROBE("_mm256_maskz_loadu_epi16", _mm256_maskz_loadu_epi16(mask16(in), in.memory)),
    QUIRE_PROBE("_mm_maskz_loadu_epi8", _mm_maskz_loadu_epi8(mask16(in), in.memory)),
    {"_mm512_stream_ps", Needs::kAvx512,
     [](const ProbeOperands& in,
        std::byte* to) { _mm512_stream_ps(reinterpret_cast<float*>(to), ps(in.a)); }},
    {"_mm512_mask_storeu_ps", Needs::kAvx512,
     [](const ProbeOperands& in, std::byte*) { _mm512_mask_storeu_ps(in.memory, mask16(in), ps(in.a)); }},
    {"_mm512_mask_storeu_epi32", Needs::kAvx512,
     [](const ProbeOperands& in, std::byte*) { _mm512_mask_storeu_epi32(in.memory, mask16(in), si(in.a)); }},
    {"_mm256_mask_storeu_epi16", Needs::kAvx512,
     [](const ProbeOperands& in,
        std::byte*) { _mm256_mask_storeu_epi16(in.memory, mask16(in), half_si(in.a)); }},
    {"_mm512_dpbusd_epi32", Needs::kVnni,
     [](const ProbeOperands& in,
        std::byte* to) { put(to, _mm512_dpbusd_epi32(si(in.c), si(in.a), si(in.b))); }},
    {"_mm256_dpbusd_avx_epi32", Needs::kAvxVnni,
     [](const ProbeOperands& in,
        std::byte* to) { put(to, _mm256_dpbusd_avx_epi32(half_si(in.c), half_si(in.a), half_si(in.b))); }},
    {"_mm512_dpwssd_epi32", Needs::kVnni,
     [](const ProbeOperands& in,
        std::byte* to) { put(to, _mm512_dpwssd_epi32(si(in.c), si(in.a), si(in.b))); }},
    {"_mm256_dpwssd_avx_epi32", Needs::kAvxVnni,
     [](const ProbeOperands& in,
        std::byte* to) { put(to, _mm256_dpwssd_avx_epi32(half_si(in.c), half_si(in.a), half_si(in.b))); }},
    {"_mm512_cvtneps_pbh", Needs::kBf16,
     [](const ProbeOperands& in, std::byte* to) { put(to, (__m256i)_mm512_cvtneps_pbh(ps(in.a))); }},
    {"_mm512_cvtne2ps_pbh", Needs::kBf16,
     [](const ProbeOperands& in,
        std::byte* to) { put(to, (__m512i)_mm512_cvtne2ps_pbh(ps(in.a), ps(in.b))); }},
    {"_mm512_dpbf16_ps", Needs::kBf16,
     [](const ProbeOperands& in,
        std::byte* to) { put(to, _mm512_dpbf16_ps(ps(in.c), (__m512bh)si(in.a), (__m512bh)si(in.b))); }},
    {"_tile_dpbssd", Needs::kAmx,
     [](const ProbeOperands& in, std::byte* to) { multiply_tiles(in, to, [] { _tile_dpbssd(0, 1, 2); }); }},
    {"_tile_dpbf16ps", Needs::kAmx,
     [](const ProbeOperands& in, std::byte* to) { multiply_tiles(in, to, [] { _tile_dpbf16ps(0, 1, 2); }); }},
};

#undef QUIRE_COUNT
#undef QUIRE_ONE
#undef QUIRE_TWO
#undef QUIRE_PROBE

}  // namespace
}  // namespace quire::test
