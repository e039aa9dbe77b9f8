#include "kernels/cpu/x86/attention_kernels.h"
#include "kernels/cpu/x86/elementwise_kernels.h"
#include "kernels/cpu/x86/matmul_kernels.h"
#include "kernels/cpu/x86/tables.h"
#include "kernels/cpu/x86/vec_avx2.h"

namespace quire::cpu::avx2 {

extern const KernelTable kTable = {
    .to_f32 = {to_f32<Vec, F32, F32>, to_f32<Vec, F32, F16>, to_f32<Vec, F32, Bf16>},
    .from_f32 = {from_f32<Vec, F32, F32>, from_f32<Vec, F32, F16>, from_f32<Vec, F32, Bf16>},
    .matmul = {matmul<PlainKernel<Vec, F32>>, matmul<PlainKernel<Vec, F16>>,
               matmul<WidenedKernel<Vec, Bf16Pairs>>},
    .attention = {attention<Vec, F32>, attention<Vec, F16>, attention<Vec, Bf16>},
    .bf16_activations = DType::kF32,
    .rms_norm = rms_norm<Vec>,
    .add_in_place = add_in_place<Vec>,
    .swiglu = swiglu<Vec>,
    .rope = rope<Vec>,
};

}  // namespace quire::cpu::avx2
