#include "kernels/cpu/x86/attention_integers.h"
#include "kernels/cpu/x86/attention_kernels.h"
#include "kernels/cpu/x86/int4_kernels.h"
#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx512.h"
#include "kernels/cpu/x86/vnni_avx512.h"

namespace quire::kernels::cpu::avx512_vnni {
namespace {

/// Types of this file's own, so that their functions are.
struct Int4 : avx512::Int4 {};
/// For Zen 4 on, which shuffles bytes while it multiplies; Intel's have fewer units for both.
struct ScaledInt4 : avx512::ScaledInt4 {
  static constexpr size_t kScaledRows = 48;
};
/// For machines that have tiles.
struct FewInt4 : avx512::Int4 {
  static constexpr size_t kPlaces = 8;
};

}  // namespace

extern const MatmulKernel kInt8 = matmul_kernel<IntegerKernel<ShiftedDot>>(RowForm::kUint8);
extern const MatmulKernel kInt4 = int4_kernel<IntegerKernel<ShiftedDot>, Int4>(RowForm::kUint8);
extern const MatmulKernel kScaledInt4 = int4_kernel<IntegerKernel<ShiftedDot>, ScaledInt4>(RowForm::kUint8);
extern const AttentionKernel kInt8Attention = attention<avx512::Vec, Integers<ShiftedDot>>;
extern const MatmulKernel kFewInt4 = int4_kernel<IntegerKernel<ShiftedDot>, FewInt4>(RowForm::kUint8);

}  // namespace quire::kernels::cpu::avx512_vnni
