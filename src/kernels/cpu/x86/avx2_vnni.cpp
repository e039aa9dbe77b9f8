#include "kernels/cpu/x86/attention_integers.h"
#include "kernels/cpu/x86/attention_kernels.h"
#include "kernels/cpu/x86/int4_kernels.h"
#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx2.h"
#include "kernels/cpu/x86/vnni_avx2.h"

namespace quire::kernels::cpu::avx2_vnni {
namespace {

/// See int4_kernels.h. Here a product of int8 costs no more than one of nibbles does, so that with many rows
/// it pays to expand a panel.
struct Int4 : avx2::Int4 {
  static constexpr bool kExpands = true;
  static QUIRE_INLINE avx2::IntVec scales(const int8_t* from) {
    return {_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from)))};
  }
  template <class Kernel>
  static QUIRE_INLINE avx2::IntVec multiply_add(avx2::IntVec dots, avx2::IntVec w, avx2::IntVec x) {
    return avx2::IntVec::in_order(Kernel::multiply_add(dots, w, x));
  }
  static QUIRE_INLINE avx2::IntVec add_scaled(avx2::IntVec sum, avx2::IntVec dots, avx2::IntVec scales) {
    return avx2::IntVec::add(sum, avx2::IntVec::mul(dots, scales));
  }
  /// As avx512::Int4 does it.
  static QUIRE_INLINE void group(const std::byte* from, int8_t* to) {
    constexpr size_t kStep = kPanelWidth * 4;
    constexpr size_t kOutputs = avx2::Vec::kLanes;
    for (size_t output = 0; output < kPanelWidth; output += kOutputs) {
      const __m256i words = scales(reinterpret_cast<const int8_t*>(from) + output).v;
      const __m256i negative = _mm256_srai_epi32(words, 31);
      const __m256i size = _mm256_abs_epi32(words);
      const __m256i sizes = _mm256_or_si256(size, _mm256_slli_epi32(size, 16));
      const __m256i bytes = _mm256_or_si256(sizes, _mm256_slli_epi32(sizes, 8));
      const __m256i middle = _mm256_sub_epi8(_mm256_slli_epi32(bytes, 3), _mm256_and_si256(bytes, negative));
      for (size_t pair = 0; pair < kInt4Group / 8; ++pair) {
        const std::byte* at = from + kPanelWidth + pair * kStep + output * 4;
        const __m256i both = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
        int8_t* step = to + pair * 2 * kStep + output * 4;
        store(step, both, negative, sizes, middle);
        store(step + kStep, _mm256_srli_epi16(both, 4), negative, sizes, middle);
      }
    }
  }

 private:
  /// Of the lower nibbles.
  static QUIRE_INLINE void store(int8_t* to, __m256i nibbles, __m256i negative, __m256i sizes,
                                 __m256i middle) {
    const __m256i q = _mm256_and_si256(_mm256_xor_si256(nibbles, negative), _mm256_set1_epi8(0x0f));
    const __m256i weights = _mm256_sub_epi8(_mm256_mullo_epi16(q, sizes), middle);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), weights);
  }
};

}  // namespace

extern const MatmulKernel kInt8 = matmul_kernel<IntegerKernel<ShiftedDot>>(RowForm::kUint8);
extern const MatmulKernel kInt4 = int4_kernel<IntegerKernel<ShiftedDot>, Int4>(RowForm::kUint8);
extern const AttentionKernel kInt8Attention = attention<avx2::Vec, Integers<ShiftedDot>>;

}  // namespace quire::kernels::cpu::avx2_vnni
