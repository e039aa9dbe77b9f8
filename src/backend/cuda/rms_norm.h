#pragma once

#include <cstdint>

#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// residual[r, :] += x[r, :], then y[r, i] = residual[r, i] / sqrt(mean over i of residual[r, i]^2 + eps) *
/// weight[i], from the sum as it is stored. Zhang and Sennrich 2019. Without a residual (null) y is of x.
/// All of `dtype` (f32, f16, bf16), rows of `width` elements without gaps, at multiples of 16 bytes; `width`
/// is a multiple of 16 bytes. y may be x. Sums are f32, in an order that depends on the width alone.
struct RmsNormArgs {
  DType dtype;
  const void* x;
  void* residual;  // or null
  const void* weight;
  void* y;
  float eps;
  uint32_t rows;
  uint32_t width;
};
[[nodiscard]] LaunchError rms_norm(const RmsNormArgs& args, Stream stream);

}  // namespace quire::backend::cuda
