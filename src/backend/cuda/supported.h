#pragma once

#include "model/config.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// Throws Error that names what this device does not compute yet in `dtype`, if the model has it.
void refuse_unsupported(const model::ModelConfig& config, DType dtype);

}  // namespace quire::backend::cuda
