#include "backend/cpu/linear.h"

#include <algorithm>

namespace quire::backend::cpu {

void matmul(kernels::KernelContext& context, const Linear& linear, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy) {
  const float* bias = linear.bias.size() == 0 ? nullptr : linear.bias.as<float>();
  for (const kernels::PackedMatrix& matrix : linear.matrices) {
    kernels::matmul(context, matrix, x, ldx, m, y, ldy, bias);
    y += matrix.n();
    if (bias != nullptr) bias += matrix.n();
  }
}

size_t matmul_scratch_bytes(const kernels::KernelContext& context, const Linear& linear, size_t m) {
  size_t bytes = 0;
  for (const kernels::PackedMatrix& matrix : linear.matrices) {
    bytes = std::max(bytes, kernels::matmul_scratch_bytes(context, matrix, m));
  }
  return bytes;
}

}  // namespace quire::backend::cpu
