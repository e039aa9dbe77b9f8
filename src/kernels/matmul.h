#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "tensor/tensor.h"

namespace quire {

/// A weight matrix W [n, k] laid out for the micro-kernels: panels of 32 outputs, K in sequence inside a
/// panel, the last panel padded with zeros. Immutable; shared between threads freely.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Packs a copy of `weights` [n, k] (f32, f16 or bf16). `compute` is the format kept and multiplied in:
  /// f32: exact copy of f32 weights, f32 activations; f16: f16 weights, f32 activations;
  /// bf16: bf16 weights, activations rounded to bf16. Accumulation is in f32 everywhere.
  PackedMatrix(KernelContext& context, const TensorView& weights, DType compute);

  size_t n() const { return n_; }
  size_t k() const { return k_; }
  DType dtype() const { return dtype_; }
  const std::byte* data() const { return data_.data(); }
  size_t num_bytes() const { return data_.size(); }

 private:
  size_t n_ = 0;
  size_t k_ = 0;
  DType dtype_ = DType::kF32;
  Buffer data_;
};

/// y[m, n] = sum over k of x[m, k] * W[n, k] (+ bias[n]).
/// x [m, k] f32 with row stride ldx, y [m, n] f32 with row stride ldy (in elements), not overlapping; bias
/// [n] f32 or null. Every y[m, n] adds its products in one fixed order that depends on k alone.
void matmul(KernelContext& context, const PackedMatrix& weights, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy, const float* bias = nullptr);

}  // namespace quire
