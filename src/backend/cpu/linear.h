#pragma once

#include <cstddef>
#include <vector>

#include "kernels/context.h"
#include "kernels/matmul.h"
#include "tensor/buffer.h"

namespace quire::backend::cpu {

/// y = W x (+ bias), several matrices of the checkpoint stacked into one; or into a few one above the other,
/// where they are kept in different formats.
struct Linear {
  std::vector<kernels::PackedMatrix> matrices;  // of one k
  Buffer bias;                                  // f32 [n], empty if none

  size_t k() const { return matrices.front().k(); }
};

/// y [m, n] of x [m, k], as kernels/matmul.h has it.
void matmul(kernels::KernelContext& context, const Linear& linear, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy);

}  // namespace quire::backend::cpu
