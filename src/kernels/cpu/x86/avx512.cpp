#include "kernels/cpu/x86/attention_integers.h"
#include "kernels/cpu/x86/attention_kernels.h"
#include "kernels/cpu/x86/elementwise_kernels.h"
#include "kernels/cpu/x86/int4_kernels.h"
#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/moe_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx512.h"

namespace quire::kernels::cpu::avx512 {

extern const bool kCompiled = true;

extern const KernelTable kTable = {
    .to_f32 = {to_f32<Vec, F32, F32>, to_f32<Vec, F32, F16>, to_f32<Vec, F32, Bf16>},
    .from_f32 = {from_f32<Vec, F32, F32>, from_f32<Vec, F32, F16>, from_f32<Vec, F32, Bf16>},
    .matmul = {matmul_kernel<PlainKernel<Vec, F32>>(RowForm::kF32),
               matmul_kernel<PlainKernel<Vec, F16>>(RowForm::kF32),
               matmul_kernel<WidenedKernel<Vec, Bf16Pairs>>(RowForm::kRounded),
               matmul_kernel<IntegerKernel<SignedDot>>(RowForm::kInt8),
               int4_kernel<IntegerKernel<SignedDot>, Int4>(RowForm::kInt8)},
    .quantize = quantize<Vec>,
    .attention = {attention<Vec, Singles<Vec, F32>>, attention<Vec, Singles<Vec, F16>>,
                  attention<Vec, Pairs<Vec, Bf16Pairs>>, attention<Vec, Integers<AttentionDot>>},
    .merge_spans = merge_spans<Vec>,
    .rms_norm = rms_norm<Vec>,
    .add_in_place = add_in_place<Vec>,
    .scale_in_place = scale_in_place<Vec>,
    .soft_cap = soft_cap<Vec>,
    .swiglu = gated<Vec, Silu>,
    .geglu = gated<Vec, GeluTanh>,
    .rope = rope<Vec>,
    .route = route<Vec>,
    .combine = combine<Vec>,
};

}  // namespace quire::kernels::cpu::avx512
