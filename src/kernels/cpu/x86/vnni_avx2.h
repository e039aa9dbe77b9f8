#pragma once

#include <cstddef>

#include "kernels/cpu/x86/vec_avx2.h"

namespace quire::kernels::cpu::avx2_vnni {

/// See avx512_vnni::ShiftedDot; this is the instruction of AVX-VNNI.
struct ShiftedDot {
  using Vec = avx2::Vec;
  using Sum = avx2::IntVec;
  static constexpr bool kShifted = true;
  static constexpr size_t kTemporaries = 1;
  static constexpr size_t key_tiles(size_t rows) { return rows == 1 ? 4 : rows == 2 ? 2 : 1; }
  static QUIRE_INLINE Sum of_keys(Sum bytes) { return {_mm256_sub_epi8(bytes.v, _mm256_set1_epi8(-128))}; }
  static QUIRE_INLINE Sum multiply_add(Sum sum, Sum of_signed, Sum of_unsigned) {
    return {_mm256_dpbusd_avx_epi32(sum.v, of_unsigned.v, of_signed.v)};
  }
  static QUIRE_INLINE Sum multiply_pairs(Sum sum, Sum a, Sum b) {
    return {_mm256_dpwssd_avx_epi32(sum.v, a.v, b.v)};
  }
};

}  // namespace quire::kernels::cpu::avx2_vnni
