#include "kernels/cpu/x86/pack_kernels.h"
#include "kernels/cpu/x86/pack_tables.h"
#include "kernels/cpu/x86/vec_avx2.h"

namespace quire::kernels::cpu::avx2 {
namespace {

/// See avx512.
struct PackVec {
  using V = Vec;
  static constexpr size_t kLanes = V::kLanes;

  struct Doubles {
    __m256d low, high;

    static QUIRE_INLINE Doubles zero() { return {_mm256_setzero_pd(), _mm256_setzero_pd()}; }
    static QUIRE_INLINE Doubles widened(V a) {
      return {_mm256_cvtps_pd(_mm256_castps256_ps128(a.v)), _mm256_cvtps_pd(_mm256_extractf128_ps(a.v, 1))};
    }
    static QUIRE_INLINE V narrowed(Doubles a) {
      return {_mm256_set_m128(_mm256_cvtpd_ps(a.high), _mm256_cvtpd_ps(a.low))};
    }
    static QUIRE_INLINE V ratio(Doubles a, Doubles b) {
      return narrowed({_mm256_div_pd(a.low, b.low), _mm256_div_pd(a.high, b.high)});
    }
    QUIRE_INLINE void add_product(V a, V b) {
      const Doubles x = widened(a);
      const Doubles y = widened(b);
      low = _mm256_add_pd(low, _mm256_mul_pd(x.low, y.low));
      high = _mm256_add_pd(high, _mm256_mul_pd(x.high, y.high));
    }
  };

  struct Integers {
    __m256i v;

    static QUIRE_INLINE Integers zero() { return {_mm256_setzero_si256()}; }
    QUIRE_INLINE void add(V a) { v = _mm256_add_epi32(v, _mm256_cvtps_epi32(a.v)); }
    QUIRE_INLINE void put_byte(V byte, size_t index) {
      const __m128i bits = _mm_cvtsi32_si128(static_cast<int>(8 * index));
      v = _mm256_or_si256(v, _mm256_sll_epi32(_mm256_cvtps_epi32(byte.v), bits));
    }
    QUIRE_INLINE void store(std::byte* to) const { _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), v); }
    QUIRE_INLINE void store_times_128(int32_t* to) const {
      _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), _mm256_slli_epi32(v, 7));
    }
  };

  static QUIRE_INLINE void transpose(const std::byte* const* rows, size_t offset, size_t units, std::byte* to,
                                     size_t step, size_t lanes) {
    const __m256i mask = V::mask(units);
    __m256i a[8];
    __m256i b[8];
    QUIRE_UNROLL
    for (size_t i = 0; i < 8; ++i) {
      a[i] = rows[i] == nullptr ? _mm256_setzero_si256()
                                : _mm256_maskload_epi32(reinterpret_cast<const int*>(rows[i] + offset), mask);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 8; i += 2) {
      b[i] = _mm256_unpacklo_epi32(a[i], a[i + 1]);
      b[i + 1] = _mm256_unpackhi_epi32(a[i], a[i + 1]);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 8; i += 4) {
      a[i] = _mm256_unpacklo_epi64(b[i], b[i + 2]);
      a[i + 1] = _mm256_unpackhi_epi64(b[i], b[i + 2]);
      a[i + 2] = _mm256_unpacklo_epi64(b[i + 1], b[i + 3]);
      a[i + 3] = _mm256_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 4; ++i) {
      b[i] = _mm256_permute2x128_si256(a[i], a[i + 4], 0x20);
      b[i + 4] = _mm256_permute2x128_si256(a[i], a[i + 4], 0x31);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 8; ++i) {
      if (i >= units) break;
      if (lanes == kLanes) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(to + i * step), b[i]);
      } else {  // takes many instructions on some machines
        _mm256_maskstore_epi32(reinterpret_cast<int*>(to + i * step), V::mask(lanes), b[i]);
      }
    }
  }
};

}  // namespace

extern const PackTable kPackTable = {.interleave = interleave<PackVec>, .int4_panel = int4_panel<PackVec>};

}  // namespace quire::kernels::cpu::avx2
