#pragma once

#include <cstdint>

#include "backend/cuda/stream.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// out[r, i] = activation(gate_up[r, i]) * gate_up[r, width + i], with SiLU or the tanh form of GELU
/// (kernels/elementwise.h). Shazeer 2020 (SwiGLU, GEGLU). Rows of gate_up have 2 * width elements of `dtype`
/// (f32, f16, bf16), rows of out `width`, without gaps and at multiples of 16 bytes; `width` is a multiple of
/// 16 bytes and at most 2^23 elements. Computed in f32.
struct GatedArgs {
  DType dtype;
  model::Activation activation;
  const void* gate_up;
  void* out;
  uint32_t rows;
  uint32_t width;
};
[[nodiscard]] LaunchError gated(const GatedArgs& args, Stream stream);

}  // namespace quire::backend::cuda
