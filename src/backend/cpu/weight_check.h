#pragma once

#include "formats/checkpoint.h"
#include "kernels/context.h"
#include "tensor/tensor.h"

namespace quire::backend::cpu {

/// Logs a warning with the file, the tensor and its first such element if `tensor` (f32, f16 or bf16)
/// holds a NaN or an infinity. Reads all of it once, on the context's threads.
void warn_if_not_finite(kernels::KernelContext& context, const TensorView& tensor,
                        const formats::TensorPlace& place);

}  // namespace quire::backend::cpu
