#pragma once

#include <cstdint>

#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// residual[r, :] += factor * x[r, :], then y[r, i] = residual[r, i] / sqrt(mean over i of residual[r, i]^2 +
/// eps) * weight[i], from the sum as it is stored. Zhang and Sennrich 2019. Without a residual (null) y is of
/// x. All but the weight of `dtype` (f32, f16, bf16); everything at multiples of 16 bytes. y may be x. Sums
/// are f32, in an order that depends on the width alone.
///
/// A row is `width` elements, a multiple of 16 bytes. Those of x and of y are heads of larger rows: row r
/// begins at element (r / heads) * stride + (r % heads) * width. Those of the residual have no gaps.
struct RmsNormArgs {
  DType dtype;
  const void* x;
  void* residual;  // or null
  float factor;
  const float* weight;  // [width]
  void* y;
  float eps;
  uint32_t rows;
  uint32_t width;
  uint32_t heads;   // at least 1
  uint32_t stride;  // a multiple of 16 bytes
};
[[nodiscard]] LaunchError rms_norm(const RmsNormArgs& args, Stream stream);

}  // namespace quire::backend::cuda
