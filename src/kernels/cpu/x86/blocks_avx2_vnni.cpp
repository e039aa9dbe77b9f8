#include "kernels/cpu/x86/block_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx2.h"

namespace quire::kernels::cpu::avx2_vnni {
namespace {

/// See avx512_vnni::BlockDot.
struct BlockDot {
  using Vec = avx2::Vec;
  using Int = avx2::IntVec;
  using F16 = avx2::F16;
  using I8 = avx2::I8;
  static constexpr size_t kPrefetch = 4096;
  static constexpr size_t kMaxRows = 4;
  static constexpr size_t vectors(size_t rows) { return rows == 1 ? 4 : 2; }

  template <int kZero>
  static QUIRE_INLINE Int start(const uint8_t* sum) {
    return kZero == 0 ? Int::zero() : Int::set4(sum);
  }
  template <class Steps>
  static QUIRE_INLINE Int add(Int dots, Steps w, Steps x) {
    const __m256i first = _mm256_dpbusd_avx_epi32(dots.v, w.first.v, x.first.v);
    return {_mm256_dpbusd_avx_epi32(first, w.second.v, x.second.v)};
  }
  template <int kZero>
  static QUIRE_INLINE Int finish(Int dots, const uint8_t*) {
    return dots;
  }
  static QUIRE_INLINE Int low_nibbles(Int a) { return {_mm256_and_si256(a.v, _mm256_set1_epi8(0x0f))}; }
  static QUIRE_INLINE Int high_nibbles(Int a) { return low_nibbles({_mm256_srli_epi16(a.v, 4)}); }
};

}  // namespace

extern const MatmulKernel kBlocks[4] = {
    {matmul_blocks<WeightFormat::kQ8_0, BlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_0, BlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_K, BlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ6_K, BlockDot>, RowForm::kInt8Sums},
};

}  // namespace quire::kernels::cpu::avx2_vnni
