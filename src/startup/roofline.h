#pragma once

#include "backend/cpu/inspect.h"
#include "backend/machine.h"
#include "backend/model_shape.h"
#include "backend/sim/roofline_cost.h"
#include "model/config.h"

// The time of a step of a model on a machine, by arithmetic.
namespace quire::startup {

/// `shape` and `weights`: of the model, in the formats in which the machine has K/V and weights. A layer
/// whose window holds all positions has full attention. The overhead of a step is that of what quire's own
/// backend for GPUs launches (backend/cuda/launches.h), 9 kernels for a layer of Llama's family. That lies
/// between what was counted of other engines: 7 with vLLM's and SGLang's fusing (Spector et al., "Look Ma, No
/// Bubbles!", 2025) and 8 (293 a token of Qwen3-8B; MPK, arXiv 2512.22219, 2025) to 11. Pure.
backend::sim::RooflineCost roofline_of(const model::ModelConfig& config, const backend::ModelShape& shape,
                                       const backend::cpu::WeightSizes& weights,
                                       const backend::MachineSpeed& speed, uint32_t block_size);

}  // namespace quire::startup
