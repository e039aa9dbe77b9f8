#include "backend/cpu/linear.h"

#include <algorithm>

namespace quire::backend::cpu {
namespace {

/// Calls multiply(matrix, y, bias) for each matrix, with where its outputs begin.
template <class Multiply>
void for_matrices(const Linear& linear, float* y, const Multiply& multiply) {
  const float* bias = linear.bias.size() == 0 ? nullptr : linear.bias.as<float>();
  for (const kernels::PackedMatrix& matrix : linear.matrices) {
    multiply(matrix, y, bias);
    y += matrix.n();
    if (bias != nullptr) bias += matrix.n();
  }
}

}  // namespace

void matmul(kernels::KernelContext& context, const Linear& linear, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy) {
  for_matrices(linear, y, [&](const kernels::PackedMatrix& matrix, float* to, const float* bias) {
    kernels::matmul(context, matrix, x, ldx, m, to, ldy, bias);
  });
}

void matmul_gated(kernels::KernelContext& context, const Linear& linear, kernels::Gate gate,
                  const float* gate_up, size_t m, float* y, size_t ldy) {
  for_matrices(linear, y, [&](const kernels::PackedMatrix& matrix, float* to, const float* bias) {
    kernels::matmul_gated(context, matrix, gate, gate_up, m, to, ldy, bias);
  });
}

size_t matmul_scratch_bytes(const kernels::KernelContext& context, const Linear& linear, size_t m) {
  size_t bytes = 0;
  for (const kernels::PackedMatrix& matrix : linear.matrices) {
    bytes = std::max(bytes, kernels::matmul_scratch_bytes(context, matrix, m));
  }
  return bytes;
}

}  // namespace quire::backend::cpu
