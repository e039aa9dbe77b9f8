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
  static constexpr size_t kTiles = 4;
  static QUIRE_INLINE Sum unsigned_bytes(Sum bytes) {
    return {_mm512_sub_epi8(bytes.v, _mm512_set1_epi8(-128))};
  }
  static QUIRE_INLINE Sum multiply_add(Sum sum, Sum w, Sum x) {
    return {_mm512_dpbusd_epi32(sum.v, x.v, w.v)};
  }
  static QUIRE_INLINE void stay([[maybe_unused]] Sum& sum) {
#ifdef __AVX512F__  // not in tests/levels_anywhere
    asm("" : "+v"(sum.v));
#endif
  }
};

}  // namespace quire::kernels::cpu::avx512_vnni
