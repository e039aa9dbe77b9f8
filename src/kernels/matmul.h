#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "kernels/context.h"
#include "tensor/tensor.h"
#include "tensor/weight_format.h"

namespace quire::kernels {

/// Increased by every change of a layout or of quantization that changes a byte of a packed matrix: files of
/// packed matrices of earlier versions are then invalid.
inline constexpr int kPackVersion = 1;

/// A weight matrix W [n, k] laid out for the micro-kernels: panels of 32 outputs, with K in sequence inside a
/// panel, and outputs and K padded with zeros. Immutable and thread-safe. All ISA levels pack to the same
/// bytes.
class PackedMatrix {
 public:
  /// Rows [first, first + count) of part `part` have been read for the last time.
  using RowsRead = std::function<void(size_t part, size_t first, size_t count)>;

  PackedMatrix() = default;
  /// Packs a copy of `weights` [n, k] (f32, f16 or bf16), rounded or quantized to `format`. For ggml formats
  /// `weights` is [n, bytes of a row] u8, the rows' quantization blocks as in a file.
  PackedMatrix(KernelContext& context, const TensorView& weights, WeightFormat format);
  /// The same for matrices with the same k, stacked in order. `done`, if set, is called by the pool's threads
  /// as they proceed, and covers each part once.
  PackedMatrix(KernelContext& context, std::span<const TensorView> parts, WeightFormat format,
               const RowsRead& done = {});
  /// A view of the bytes() of another matrix of these sizes; `bytes` belong to the caller and must outlive
  /// it. REQUIRES: bytes_of(n, k, format) bytes, aligned to 64.
  PackedMatrix(size_t n, size_t k, WeightFormat format, const std::byte* bytes, bool finite);

  size_t n() const { return n_; }
  size_t k() const { return k_; }
  WeightFormat format() const { return format_; }
  /// Whether all weights that it was packed from are finite.
  bool finite() const { return finite_; }
  /// The layout is in kernels/cpu/kernel_table.h.
  const std::byte* data() const { return data_; }
  /// Per output, only for int8 and int4: [n rounded up to 32].
  const float* scales() const { return reinterpret_cast<const float*>(data_ + panels_bytes_); }
  /// 128 times the sum of an output's integers, only for int8 and int4: [n rounded up to 32].
  const int32_t* offsets() const {
    return reinterpret_cast<const int32_t*>(data_ + (panels_bytes_ + num_bytes_) / 2);
  }
  /// The panels, the scales and the offsets.
  std::span<const std::byte> bytes() const { return {data_, num_bytes_}; }
  size_t num_bytes() const { return num_bytes_; }
  static size_t bytes_of(size_t n, size_t k, WeightFormat format);

 private:
  PackedMatrix(size_t n, size_t k, WeightFormat format);

  size_t n_ = 0;
  size_t k_ = 0;
  WeightFormat format_ = WeightFormat::kF32;
  bool finite_ = true;
  size_t panels_bytes_ = 0;
  size_t num_bytes_ = 0;
  Buffer own_;  // empty if the bytes belong to the caller
  const std::byte* data_ = nullptr;
};

/// y[m, n] = sum over k of x[m, k] * W[n, k] (+ bias[n]). x [m, k] f32 with row stride ldx, y [m, n] f32 with
/// row stride ldy (in elements), not overlapping; bias [n] f32 or null. Every y[m, n] adds its products in
/// one fixed order that depends on k alone. A row with a value that is not finite gives a row without finite
/// elements.
void matmul(KernelContext& context, const PackedMatrix& weights, const float* x, size_t ldx, size_t m,
            float* y, size_t ldy, const float* bias = nullptr);

enum class Gate : uint8_t { kSilu, kGeluTanh };

/// The same where x[r, i] is the gate's function of gate_up[r, i], times gate_up[r, k + i] (see swiglu and
/// geglu in kernels/elementwise.h): the same bits without x in memory. gate_up [m, 2 k].
void matmul_gated(KernelContext& context, const PackedMatrix& weights, Gate gate, const float* gate_up,
                  size_t m, float* y, size_t ldy, const float* bias = nullptr);

/// The bytes of KernelContext::scratch that either call takes at most.
size_t matmul_scratch_bytes(const KernelContext& context, const PackedMatrix& weights, size_t m);

}  // namespace quire::kernels
