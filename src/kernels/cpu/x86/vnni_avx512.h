#pragma once

#include <cstddef>

#include "kernels/cpu/x86/vec_avx512.h"

namespace quire::kernels::cpu::avx512_vnni {

/// VPDPBUSD: four products of signed bytes (weights, queries) and unsigned ones (activations, keys: int8 with
/// 128 added) a lane and instruction. See matmul_kernels.h and attention_integers.h.
struct ShiftedDot {
  using Vec = avx512::Vec;
  using Sum = avx512::IntVec;
  static constexpr bool kShifted = true;
  static constexpr size_t kTemporaries = 1;
  static constexpr size_t key_tiles(size_t) { return 4; }
  static QUIRE_INLINE Sum of_keys(Sum bytes) { return {_mm512_sub_epi8(bytes.v, _mm512_set1_epi8(-128))}; }
  static QUIRE_INLINE Sum multiply_add(Sum sum, Sum of_signed, Sum of_unsigned) {
    return {_mm512_dpbusd_epi32(sum.v, of_unsigned.v, of_signed.v)};
  }
  static QUIRE_INLINE Sum multiply_pairs(Sum sum, Sum a, Sum b) {
    return {_mm512_dpwssd_epi32(sum.v, a.v, b.v)};
  }
};

}  // namespace quire::kernels::cpu::avx512_vnni
