#pragma once

#include <cstddef>
#include <vector>

#include "kernels/context.h"
#include "kernels/matmul.h"
#include "tensor/buffer.h"

namespace quire::backend::cpu {

/// y = W x (+ bias), for several matrices of the checkpoint that are stacked into one; or into a few, stacked
/// in order, if they have different formats.
struct Linear {
  std::vector<kernels::PackedMatrix> matrices;  // all with the same k
  Buffer bias;                                  // f32 [n], empty if none

  size_t k() const { return matrices.front().k(); }
};

/// y [m, n] of x [m, k], as in kernels/matmul.h.
void matmul(kernels::KernelContext& context, const Linear& linear, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy);

/// The same of gated rows: kernels::matmul_gated.
void matmul_gated(kernels::KernelContext& context, const Linear& linear, kernels::Gate gate,
                  const float* gate_up, size_t m, float* y, size_t ldy);

/// The bytes of KernelContext::scratch that this takes.
size_t matmul_scratch_bytes(const kernels::KernelContext& context, const Linear& linear, size_t m);

}  // namespace quire::backend::cpu
