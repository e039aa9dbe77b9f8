#include "kernels/cpu/x86/block_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx512.h"

namespace quire::kernels::cpu::avx512_vnni {
namespace {

/// Integers >= 0 of ggml's blocks, times those of a row.
struct BlockDot {
  using Vec = avx512::Vec;
  using Int = avx512::IntVec;
  using F16 = avx512::F16;
  using I8 = avx512::I8;
  static constexpr size_t kPrefetch = 4096;
  static constexpr size_t kMaxRows = 6;
  static constexpr size_t vectors(size_t) { return 2; }

  template <int kZero>
  static QUIRE_INLINE Int start(const uint8_t* sum) {
    return kZero == 0 ? Int::zero() : Int::set4(sum);
  }
  template <class Steps>
  static QUIRE_INLINE Int add(Int dots, Steps w, Steps x) {
    return {_mm512_dpbusd_epi32(_mm512_dpbusd_epi32(dots.v, w.first.v, x.first.v), w.second.v, x.second.v)};
  }
  template <int kZero>
  static QUIRE_INLINE Int finish(Int dots, const uint8_t*) {
    return dots;
  }
  static QUIRE_INLINE Int low_nibbles(Int a) { return {_mm512_and_si512(a.v, _mm512_set1_epi8(0x0f))}; }
  static QUIRE_INLINE Int high_nibbles(Int a) {
    return {_mm512_and_si512(_mm512_srli_epi16(a.v, 4), _mm512_set1_epi8(0x0f))};
  }
};

/// Machines that have tiles fetch more by themselves.
struct NearBlockDot : BlockDot {
  static constexpr size_t kPrefetch = 2048;
};

}  // namespace

extern const MatmulKernel kNearBlocks[4] = {
    {matmul_blocks<WeightFormat::kQ8_0, NearBlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_0, NearBlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_K, NearBlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ6_K, NearBlockDot>, RowForm::kInt8Sums},
};
extern const MatmulKernel kBlocks[4] = {
    {matmul_blocks<WeightFormat::kQ8_0, BlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_0, BlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ4_K, BlockDot>, RowForm::kInt8Sums},
    {matmul_blocks<WeightFormat::kQ6_K, BlockDot>, RowForm::kInt8Sums},
};

}  // namespace quire::kernels::cpu::avx512_vnni
