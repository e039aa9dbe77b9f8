#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx512.h"

namespace quire::kernels::cpu::avx512_bf16 {
namespace {

using avx512::Vec;

/// VDPBF16PS: two products a lane and instruction, accumulated in f32.
struct DotKernel {
  using Vec = avx512::Vec;
  using Sum = avx512::Vec;
  using Element = uint16_t;
  using X = uint16_t;
  static constexpr size_t kLanes = Vec::kLanes;
  static constexpr size_t kStepK = 2;
  static constexpr size_t kParts = 1;
  static constexpr size_t kTemporaries = 1;
  static QUIRE_INLINE __m512i load(const Element* p, size_t) { return _mm512_loadu_si512(p); }
  static QUIRE_INLINE __m512i broadcast(const X* x, size_t) {
    int pair = 0;
    __builtin_memcpy(&pair, x, sizeof(pair));
    __m512i all = _mm512_set1_epi32(pair);
#ifdef __AVX512F__        // not in tests/levels_anywhere
    asm("" : "+v"(all));  // Clang 16 never ends over a broadcast that it sees reinterpreted as bf16
#endif
    return all;
  }
  static QUIRE_INLINE Vec multiply_add(Vec sum, __m512i w, __m512i x) {
    return {_mm512_dpbf16_ps(sum.v, (__m512bh)w, (__m512bh)x)};
  }
  static QUIRE_INLINE Vec finish(Vec sum, const TileArgs<DotKernel>&, size_t, size_t) { return sum; }
};

}  // namespace

extern const MatmulKernel kBf16 = matmul_kernel<DotKernel>(RowForm::kBF16);

}  // namespace quire::kernels::cpu::avx512_bf16
