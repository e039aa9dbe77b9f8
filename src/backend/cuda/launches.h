#pragma once

#include <cstdint>

#include "model/config.h"

namespace quire::backend::cuda {

/// The kernels that a step launches one after the other, each product of matrices counting as one: those of
/// CudaOps for decoder::ForwardPass in f16 or bf16, with attention in one launch a layer (where its spans
/// are shared, it is one more; where few_rows() multiplies by gates and up or to queries, keys and values, it
/// applies gates or RoPE, which is one less), and one that samples all rows (another if they are of both
/// kinds of sample()). Copies are not counted, nor the launch that copies blocks before they are written
/// (BlockCopier), which few steps have. In a layer of experts it counts the launches for one token; of more
/// tokens there may be one more, which groups them. Pure.
uint32_t step_launches(const model::ModelConfig& config);

}  // namespace quire::backend::cuda
