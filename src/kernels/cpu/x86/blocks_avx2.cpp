#include "kernels/cpu/x86/block_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx2.h"

namespace quire::kernels::cpu::avx2 {
namespace {

/// What the products of ggml's blocks have in common.
struct AnyDot {
  using Vec = avx2::Vec;
  using Int = avx2::IntVec;
  using F16 = avx2::F16;
  using I8 = avx2::I8;
  static constexpr size_t kPrefetch = 4096;
  static constexpr size_t kMaxRows = 4;
  static constexpr size_t vectors(size_t rows) { return rows == 1 ? 4 : 2; }
  static QUIRE_INLINE Int low_nibbles(Int a) { return {_mm256_and_si256(a.v, _mm256_set1_epi8(0x0f))}; }
  static QUIRE_INLINE Int high_nibbles(Int a) {
    return {_mm256_and_si256(_mm256_srli_epi16(a.v, 4), _mm256_set1_epi8(0x0f))};
  }
  static QUIRE_INLINE __m256i widened(__m256i pairs) {
    return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
  }
};

/// Of integers up to 15: all the products of a group fit 16 bits, eight times 2 * 15 * 127.
struct NibbleDot : AnyDot {
  template <int kZero>
  static QUIRE_INLINE Int start(const uint8_t*) {
    return Int::zero();
  }
  template <class Steps>
  static QUIRE_INLINE Int add(Int dots, Steps w, Steps x) {
    const Int first = Int::in_order({_mm256_add_epi16(dots.v, _mm256_maddubs_epi16(w.first.v, x.first.v))});
    return Int::in_order({_mm256_add_epi16(first.v, _mm256_maddubs_epi16(w.second.v, x.second.v))});
  }
  template <int kZero>
  static QUIRE_INLINE Int finish(Int dots, const uint8_t* sum) {
    const __m256i whole = widened(dots.v);
    if constexpr (kZero == 0) return {whole};
    return {_mm256_add_epi32(whole, Int::set4(sum).v)};
  }
};

/// Of integers up to 63: those of two steps fit 16 bits.
struct SixBitDot : AnyDot {
  template <int kZero>
  static QUIRE_INLINE Int start(const uint8_t* sum) {
    return Int::set4(sum);
  }
  template <class Steps>
  static QUIRE_INLINE Int add(Int dots, Steps w, Steps x) {
    const __m256i pairs = _mm256_add_epi16(_mm256_maddubs_epi16(w.first.v, x.first.v),
                                           _mm256_maddubs_epi16(w.second.v, x.second.v));
    return Int::in_order({_mm256_add_epi32(dots.v, widened(pairs))});
  }
  template <int kZero>
  static QUIRE_INLINE Int finish(Int dots, const uint8_t*) {
    return dots;
  }
};

/// Of bytes with 128 as their zero, which is taken off here: as magnitudes, at most 128, with the signs given
/// to the row's integers, which are no less than -127, a pair of products fits 16 bits.
struct ByteDot : AnyDot {
  template <int kZero>
  static QUIRE_INLINE Int start(const uint8_t*) {
    return Int::zero();
  }
  static QUIRE_INLINE __m256i products(Int w, Int x) {
    const __m256i with_sign = _mm256_xor_si256(w.v, _mm256_set1_epi8(-128));
    return widened(_mm256_maddubs_epi16(_mm256_abs_epi8(with_sign), _mm256_sign_epi8(x.v, with_sign)));
  }
  template <class Steps>
  static QUIRE_INLINE Int add(Int dots, Steps w, Steps x) {
    const Int first = Int::in_order({_mm256_add_epi32(dots.v, products(w.first, x.first))});
    return Int::in_order({_mm256_add_epi32(first.v, products(w.second, x.second))});
  }
  template <int kZero>
  static QUIRE_INLINE Int finish(Int dots, const uint8_t*) {
    return dots;
  }
};

}  // namespace

extern const MatmulKernel kBlocks[4] = {
    {matmul_blocks<WeightFormat::kQ8_0, ByteDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_0, NibbleDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_K, NibbleDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ6_K, SixBitDot>, RowForm::kInt8Sums},
};

}  // namespace quire::kernels::cpu::avx2
