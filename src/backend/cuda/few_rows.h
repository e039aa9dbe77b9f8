#pragma once

#include <cstdint>
#include <optional>

#include "backend/cuda/rope.h"
#include "backend/cuda/stream.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// The most rows that few_rows() multiplies.
inline constexpr uint32_t kFewRows = 8;

/// y[r, i] = sum over j of x[r, j] * weights[i, j] (+ bias[i]), all on the device, row-major, without gaps
/// and at multiples of 16 bytes: x [rows, k], weights [n, k], bias [n] or null, y [rows, n].
struct FewRowsArgs {
  DType dtype;      // of x, weights and bias: f16 or bf16
  DType out_dtype;  // of y: the same, or f32
  const void* x;
  const void* weights;
  const void* bias;
  void* y;
  uint32_t rows;  // 1 to kFewRows
  uint32_t n;
  uint32_t k;
  /// If set, y [rows, n / 2] is what gated() makes of the product, with the same bits; out_dtype is dtype.
  std::optional<model::Activation> gates = std::nullopt;
  /// If set, y is its qkv, of which only queries are written, and what rope() makes of the product goes where
  /// rope() writes it, with the same bits; `gates` is not, out_dtype is dtype. Its places and positions are
  /// read once earlier work is complete. REQUIRES: few_rows_rotates().
  std::optional<RopeArgs> rope = std::nullopt;
};

/// Whether few_rows() multiplies by weights of this shape.
bool few_rows_multiplies(DType dtype, DType out_dtype, uint32_t n, uint32_t k);

/// Whether FewRowsArgs::rope may have these heads: halves of what is rotated and of what is not are multiples
/// of 8 columns.
constexpr bool few_rows_rotates(uint32_t head_dim, uint32_t rotary) {
  return head_dim % 16 == 0 && rotary % 16 == 0;
}

/// The product of few rows, which takes the time that weights need to come from memory. A sum goes along k
/// from one 16 to the next, within them as the device's mma.m16n8k16 does, and then the bias is added in f32;
/// so a row's bits depend on that row of x alone. Weights and bias are read before earlier work of the stream
/// is complete: nobody may write them while a model runs. REQUIRES: few_rows_multiplies().
LaunchError few_rows(const FewRowsArgs& args, Stream stream);

}  // namespace quire::backend::cuda
