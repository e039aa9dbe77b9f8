#pragma once

#include "backend/cuda/device.h"
#include "backend/cuda/ptx_float.h"
#include "model/config.h"

namespace quire::backend::cuda {

/// SiLU is x / (1 + exp(-x)), and the tanh form of GELU x / (1 + exp(-2 u)) with the u of which it takes the
/// tanh (kernels/elementwise.h). Kernels that call it give an x the same bits.
__device__ __forceinline__ float activate(model::Activation activation, float x) {
  constexpr float kLog2E = 1.4426950408889634F;
  float z = x;
  if (activation == model::Activation::kGeluTanh) {
    constexpr float kTwoRootsOfTwoByPi = 1.5957691216057308F;
    z = kTwoRootsOfTwoByPi * ptx::fused(0.044715F * x * x, x, x);
  }
  return x / (1.0F + ptx::exp2_approx(-kLog2E * z));
}

}  // namespace quire::backend::cuda
