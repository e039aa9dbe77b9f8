#pragma once

#include <cstddef>

#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// y[i] = y_factor * y[i] + x_factor * x[i], of `dtype` (f32, f16, bf16) at multiples of 16 bytes; x may be
/// null, then y is only multiplied. Computed in f32. `count` is a multiple of 16 bytes.
struct AddArgs {
  DType dtype;
  void* y;
  float y_factor;
  const void* x;  // or null
  float x_factor;
  size_t count;
};
[[nodiscard]] LaunchError add(const AddArgs& args, Stream stream);

/// y[i] = cap * tanh(y[i] / cap). `count` values of f32, a multiple of 4, at a multiple of 16 bytes.
struct SoftCapArgs {
  float* y;
  float cap;  // > 0
  size_t count;
};
[[nodiscard]] LaunchError soft_cap(const SoftCapArgs& args, Stream stream);

}  // namespace quire::backend::cuda
