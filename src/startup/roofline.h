#pragma once

#include "backend/cpu/inspect.h"
#include "backend/machine.h"
#include "backend/model_shape.h"
#include "backend/sim/roofline_cost.h"
#include "model/config.h"

// The time of a step of a model on a machine, by arithmetic.
namespace quire::startup {

/// The ops of a layer that are launched one after the other: norm, q/k/v, RoPE with the writing of K/V,
/// attention, output, norm, gate and up, activation, down, and what experts or a second norm add. An
/// assumption, on which only the overhead of a step depends.
inline constexpr double kOpsOfALayer = 10;

/// `shape` and `weights`: of the model, in the formats in which the machine has K/V and weights. A layer
/// whose window holds all positions has full attention. Pure.
backend::sim::RooflineCost roofline_of(const model::ModelConfig& config, const backend::ModelShape& shape,
                                       const backend::cpu::WeightSizes& weights,
                                       const backend::MachineSpeed& speed, uint32_t block_size);

}  // namespace quire::startup
