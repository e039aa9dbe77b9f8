#include "backend/cpu/linear.h"

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

}  // namespace quire::backend::cpu
