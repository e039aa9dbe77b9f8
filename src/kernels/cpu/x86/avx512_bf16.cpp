#include "kernels/cpu/x86/attention_integers.h"
#include "kernels/cpu/x86/attention_kernels.h"
#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx512.h"
#include "kernels/cpu/x86/vnni_avx512.h"

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

/// Attention by the same instruction: see attention_formats.h. Queries and weights are rounded to bf16, and
/// the sum of the weights is that of the rounded ones.
struct DotPairs {
  using Element = uint16_t;
  using Operand = __m512i;
  using Factor = __m512i;
  using KeyElement = Element;
  using Wide = void;
  static constexpr bool kScaled = false;
  static constexpr bool kIntegerKeys = false;
  static constexpr size_t kStep = 2;
  static constexpr size_t kLane = 2;
  static constexpr size_t kMostRows = Vec::kAttentionRows;
  static constexpr bool kPrefetches = true;
  static QUIRE_INLINE Operand load(const Element* p, size_t) { return _mm512_loadu_si512(p); }
  static QUIRE_INLINE Operand load(const Element* p, size_t, size_t lanes) {
    return _mm512_maskz_loadu_epi32(Vec::mask(lanes), p);
  }
  static QUIRE_INLINE Operand load_keys(const Element* tile, size_t step, size_t lane) {
    return load(tile + (step * kTileKeys + lane) * kStep, kTileKeys);
  }
  static QUIRE_INLINE Factor factor(const float* numbers, size_t step) {
    return DotKernel::broadcast(reinterpret_cast<const uint16_t*>(numbers) + 2 * step, 0);
  }
  static QUIRE_INLINE Vec multiply_add(Vec sum, Operand a, Factor b) {
    return DotKernel::multiply_add(sum, a, b);
  }
  template <size_t kOne>
  static QUIRE_INLINE Vec multiply_add_one(Vec sum, Operand a, Factor b) {
    const int one = kOne == 0 ? 0xffff : static_cast<int>(0xffff0000U);
    return multiply_add(sum, _mm512_and_si512(a, _mm512_set1_epi32(one)), b);
  }
  static constexpr float kSlack = 0.0F;
  static constexpr bool kKeepsTwo = false;
  static QUIRE_INLINE Vec exp(Vec x) { return vec_exp_for_bf16(x); }
  static QUIRE_INLINE Vec keep(float* numbers, size_t first, Vec values) {
    const auto rounded = (__m256i)_mm512_cvtneps_pbh(values.v);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(reinterpret_cast<uint16_t*>(numbers) + first), rounded);
    return avx512::Bf16::widen(rounded);
  }
};

/// What DotValues are widened to.
struct WideValues : DotPairs {
  static constexpr bool kScaled = true;
  static constexpr bool kPrefetches = false;
};

/// int8, of which each integer is a bf16 exactly, as values. What is rounded is a weight times its value's
/// scale, so the sum is that of the weights as they are.
struct DotValues : DotPairs {
  using Element = int8_t;
  using Wide = WideValues;
  static constexpr bool kScaled = true;
  static constexpr size_t kLane = 1;
  static constexpr size_t kWidenRows = cpu::kWidenRows;
  static QUIRE_INLINE Operand load(const Element* p, size_t width) {
    return avx512::I8::bf16_pairs(avx512::I8::load(p), avx512::I8::load(p + width));
  }
  static QUIRE_INLINE Operand load(const Element* p, size_t width, size_t lanes) {
    return avx512::I8::bf16_pairs(avx512::I8::load(p, lanes), avx512::I8::load(p + width, lanes));
  }
  static QUIRE_INLINE void widen(const Element* from, uint16_t* to, size_t width, size_t lanes) {
    if (lanes == 0) return _mm512_storeu_si512(to, load(from, width));
    _mm512_mask_storeu_epi32(to, Vec::mask(lanes), load(from, width, lanes));
  }
};

using DotBytes = WithIntegerKeys<avx512_vnni::ShiftedDot, DotValues>;

}  // namespace
}  // namespace quire::kernels::cpu::avx512_bf16

namespace quire::kernels::cpu {

template <>
struct StretchProducts<avx512::Vec, avx512_bf16::DotBytes>
    : IntegerKeyProducts<avx512_vnni::ShiftedDot, avx512_bf16::DotBytes> {};
template <>
struct StretchProducts<avx512::Vec, avx512_bf16::DotBytes::Wide>
    : IntegerKeyProducts<avx512_vnni::ShiftedDot, avx512_bf16::DotBytes::Wide> {};

}  // namespace quire::kernels::cpu

namespace quire::kernels::cpu::avx512_bf16 {

extern const MatmulKernel kBf16 = matmul_kernel<DotKernel>(RowForm::kBF16);
extern const AttentionKernel kBf16Attention = attention<Vec, DotPairs>;
extern const AttentionKernel kInt8Attention = attention<Vec, DotBytes>;

}  // namespace quire::kernels::cpu::avx512_bf16
