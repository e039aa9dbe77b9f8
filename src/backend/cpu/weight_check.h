#pragma once

#include "formats/checkpoint.h"
#include "kernels/context.h"
#include "tensor/tensor.h"

namespace quire::backend::cpu {

/// Logs a warning if `tensor` (f32, f16 or bf16) has a NaN or an infinity, with the file, the tensor and the
/// first such element. Reads the whole tensor once, on the context's threads.
void warn_if_not_finite(kernels::KernelContext& context, const TensorView& tensor,
                        const formats::TensorPlace& place);

}  // namespace quire::backend::cpu
