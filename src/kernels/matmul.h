#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/context.h"
#include "kernels/weight_format.h"
#include "tensor/tensor.h"

namespace quire {

/// A weight matrix W [n, k] laid out for the micro-kernels: panels of 32 outputs, K in sequence inside a
/// panel, outputs and K padded with zeros. Immutable; shared between threads freely.
class PackedMatrix {
 public:
  PackedMatrix() = default;
  /// Packs a copy of `weights` [n, k] (f32, f16 or bf16), rounded or quantized to `format`.
  PackedMatrix(KernelContext& context, const TensorView& weights, WeightFormat format);

  size_t n() const { return n_; }
  size_t k() const { return k_; }
  WeightFormat format() const { return format_; }
  /// The layout is in kernels/cpu/kernel_table.h.
  const std::byte* data() const { return data_.data(); }
  /// Of an output, int8 and int4 alone: [n rounded up to 32].
  const float* scales() const { return scales_.as<float>(); }
  /// 128 times the sum of an output's integers, int8 and int4 alone: [n rounded up to 32].
  const int32_t* offsets() const { return offsets_.as<int32_t>(); }
  size_t num_bytes() const { return data_.size() + scales_.size() + offsets_.size(); }

 private:
  size_t n_ = 0;
  size_t k_ = 0;
  WeightFormat format_ = WeightFormat::kF32;
  Buffer data_;
  Buffer scales_;
  Buffer offsets_;
};

/// y[m, n] = sum over k of x[m, k] * W[n, k] (+ bias[n]).
/// x [m, k] f32 with row stride ldx, y [m, n] f32 with row stride ldy (in elements), not overlapping; bias
/// [n] f32 or null. Every y[m, n] adds its products in one fixed order that depends on k alone. A row with a
/// value that is not finite gives a row of which no element is.
void matmul(KernelContext& context, const PackedMatrix& weights, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy, const float* bias = nullptr);

}  // namespace quire
