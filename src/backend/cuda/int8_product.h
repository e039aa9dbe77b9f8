#pragma once

#include <cstdint>

#include "backend/cuda/route.h"
#include "backend/cuda/stream.h"
#include "tensor/dtype.h"

namespace quire::backend::cuda {

/// y[r, i] = scales[i] * (sum over j of x[r, j] * weights[i, j]) (+ bias[i]), all on the device, row-major
/// and at multiples of 16 bytes, without gaps but for those of y, whose rows are result_stride() apart, and
/// of weights.
///
/// With experts (`chosen` not null) rows of y are choices: choice c multiplies x[c / x_choices] by the matrix
/// and the scales of expert chosen[c].
///
/// With group_scales weights are of int4, that is, weights[i, j] is an integer of four bits times a scale of
/// 32 neighbours, as int4_weights.h has both.
struct Int8ProductArgs {
  DType dtype;          // of x and bias: f16 or bf16
  DType out_dtype;      // of y: the same, or f32
  const void* x;        // [rows / x_choices, k]
  const void* weights;  // [n] rows of int8, as int8_weights.h has them; [num_experts, n] of them with experts
  const float* scales;  // [n], or [num_experts, n]
  const int8_t* group_scales = nullptr;  // of a matrix; of num_experts one behind the other
  const void* bias;                      // [n] or null; null with experts
  void* y;                               // [rows, n]
  uint32_t rows;
  uint32_t n;  // a multiple of 8, unless y is f32
  uint32_t k;  // a multiple of 8
  uint32_t x_choices = 1;
  uint32_t num_experts = 0;
  const uint32_t* chosen = nullptr;
  /// As group_by_expert() left them for tiles of tile_choices(). Not read where that is 1.
  const uint32_t* order = nullptr;
  const ExpertTile* tiles = nullptr;
};

/// A product with weights of int8 or int4: these are exact in f16 and bf16, and a sum goes along k from one
/// 16 to the next, within them as the device's mma.m16n8k16 does, whatever the number of rows; then it is
/// multiplied by the scale, and the bias is added. So a row's bits depend on that row of x alone, and weights
/// of int4 give the same as those of int8 that they stand for. Without experts, weights are read before
/// earlier work of the stream is complete: nobody may write them while a model runs.
[[nodiscard]] LaunchError int8_product(const Int8ProductArgs& args, Stream stream);

}  // namespace quire::backend::cuda
