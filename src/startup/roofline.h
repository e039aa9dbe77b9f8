#pragma once

#include "backend/cpu/inspect.h"
#include "backend/machine.h"
#include "backend/model_shape.h"
#include "backend/sim/roofline_cost.h"
#include "model/config.h"

// The time of a step of a model on a machine, by arithmetic.
namespace quire::startup {

/// The ops of a layer that are launched one after the other: norm, q/k/v, RoPE with the writing of K/V,
/// attention, output, norm, gate and up, activation, down, and what a second norm adds. It lies between
/// what was counted of dense models: 7 with vLLM's and SGLang's fusing (Spector et al., "Look Ma, No
/// Bubbles!", 2025) and 8 (293 a token of Qwen3-8B; MPK, arXiv 2512.22219, 2025) to 11. Layers of experts
/// launch more. Only the overhead of a step depends on it.
inline constexpr double kOpsOfALayer = 10;

/// `shape` and `weights`: of the model, in the formats in which the machine has K/V and weights. A layer
/// whose window holds all positions has full attention. Pure.
backend::sim::RooflineCost roofline_of(const model::ModelConfig& config, const backend::ModelShape& shape,
                                       const backend::cpu::WeightSizes& weights,
                                       const backend::MachineSpeed& speed, uint32_t block_size);

}  // namespace quire::startup
