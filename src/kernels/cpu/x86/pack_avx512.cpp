#include "kernels/cpu/x86/pack_kernels.h"
#include "kernels/cpu/x86/pack_tables.h"
#include "kernels/cpu/x86/vec_avx512.h"

namespace quire::kernels::cpu::avx512 {
namespace {

struct PackVec {
  using V = Vec;
  static constexpr size_t kLanes = V::kLanes;

  /// A double for every lane.
  struct Doubles {
    __m512d low, high;

    static QUIRE_INLINE Doubles zero() { return {_mm512_setzero_pd(), _mm512_setzero_pd()}; }
    static QUIRE_INLINE Doubles widened(V a) {
      return {_mm512_cvtps_pd(_mm512_castps512_ps256(a.v)), _mm512_cvtps_pd(V::upper_half(a.v))};
    }
    static QUIRE_INLINE V narrowed(Doubles a) {
      const __m512 low = _mm512_castps256_ps512(_mm512_cvtpd_ps(a.low));
      const __m256d high = _mm256_castps_pd(_mm512_cvtpd_ps(a.high));
      return {_mm512_castpd_ps(_mm512_insertf64x4(_mm512_castps_pd(low), high, 1))};
    }
    static QUIRE_INLINE V ratio(Doubles a, Doubles b) {
      return narrowed({_mm512_div_pd(a.low, b.low), _mm512_div_pd(a.high, b.high)});
    }
    QUIRE_INLINE void add_product(V a, V b) {
      const Doubles x = widened(a);
      const Doubles y = widened(b);
      low = _mm512_add_pd(low, _mm512_mul_pd(x.low, y.low));
      high = _mm512_add_pd(high, _mm512_mul_pd(x.high, y.high));
    }
  };

  struct Integers {
    __m512i v;

    static QUIRE_INLINE Integers zero() { return {_mm512_setzero_si512()}; }
    QUIRE_INLINE void add(V a) { v = _mm512_add_epi32(v, _mm512_cvtps_epi32(a.v)); }
    QUIRE_INLINE void put_byte(V byte, size_t index) {
      const __m128i bits = _mm_cvtsi32_si128(static_cast<int>(8 * index));
      v = _mm512_or_si512(v, _mm512_sll_epi32(_mm512_cvtps_epi32(byte.v), bits));
    }
    QUIRE_INLINE void store(std::byte* to) const { _mm512_storeu_si512(to, v); }
    QUIRE_INLINE void store_times_128(int32_t* to) const { _mm512_storeu_si512(to, _mm512_slli_epi32(v, 7)); }
  };

  /// `units` <= 16 of 4 bytes at `offset` of 16 rows; unit u of the first `lanes` to to + u * step.
  static QUIRE_INLINE void transpose(const std::byte* const* rows, size_t offset, size_t units, std::byte* to,
                                     size_t step, size_t lanes) {
    const __mmask16 mask = V::mask(units);
    __m512i a[16];
    __m512i b[16];
    QUIRE_UNROLL
    for (size_t i = 0; i < 16; ++i) {
      a[i] = rows[i] == nullptr ? _mm512_setzero_si512() : _mm512_maskz_loadu_epi32(mask, rows[i] + offset);
    }
    // Squares of 4 inside the quarters of the registers, then the quarters.
    QUIRE_UNROLL
    for (size_t i = 0; i < 16; i += 2) {
      b[i] = _mm512_unpacklo_epi32(a[i], a[i + 1]);
      b[i + 1] = _mm512_unpackhi_epi32(a[i], a[i + 1]);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 16; i += 4) {
      a[i] = _mm512_unpacklo_epi64(b[i], b[i + 2]);
      a[i + 1] = _mm512_unpackhi_epi64(b[i], b[i + 2]);
      a[i + 2] = _mm512_unpacklo_epi64(b[i + 1], b[i + 3]);
      a[i + 3] = _mm512_unpackhi_epi64(b[i + 1], b[i + 3]);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 4; ++i) {
      b[i] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0x88);
      b[i + 4] = _mm512_shuffle_i32x4(a[i], a[i + 4], 0xdd);
      b[i + 8] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0x88);
      b[i + 12] = _mm512_shuffle_i32x4(a[i + 8], a[i + 12], 0xdd);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 4; ++i) {
      a[i] = _mm512_shuffle_i32x4(b[i], b[i + 8], 0x88);
      a[i + 8] = _mm512_shuffle_i32x4(b[i], b[i + 8], 0xdd);
      a[i + 4] = _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0x88);
      a[i + 12] = _mm512_shuffle_i32x4(b[i + 4], b[i + 12], 0xdd);
    }
    QUIRE_UNROLL
    for (size_t i = 0; i < 16; ++i) {
      if (i >= units) break;
      if (lanes == kLanes) {
        _mm512_storeu_si512(to + i * step, a[i]);
      } else {
        _mm512_mask_storeu_epi32(to + i * step, V::mask(lanes), a[i]);
      }
    }
  }
};

}  // namespace

extern const PackTable kPackTable = {.interleave = interleave<PackVec>, .int4_panel = int4_panel<PackVec>};

}  // namespace quire::kernels::cpu::avx512
