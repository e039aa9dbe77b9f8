// CudaOps::feed_forward: one gated network, or the experts that a router chooses for each row; and products
// with integers.
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/expert_product.h"
#include "backend/cuda/gated.h"
#include "backend/cuda/int8_product.h"
#include "backend/cuda/route.h"

namespace quire::backend::cuda {

using decoder::Rows;

void CudaOps::multiply_integers(const Matrix& weights, const void* x, void* y, uint32_t rows, DType out,
                                uint32_t x_choices, const Choices& choices) {
  check(int8_product({.dtype = dtype_,
                      .out_dtype = out,
                      .x = x,
                      .weights = weights.data,
                      .scales = weights.scales,
                      .group_scales = weights.group_scales,
                      .bias = weights.bias,
                      .y = y,
                      .rows = rows,
                      .n = weights.n,
                      .k = weights.k,
                      .x_choices = x_choices,
                      .num_experts = config_.moe.num_experts,
                      .chosen = choices.chosen,
                      .order = choices.order,
                      .tiles = choices.tiles},
                     stream_),
        "int8_product");
}

void CudaOps::gate(uint32_t rows, uint32_t width) {
  check(gated({.dtype = dtype_,
               .activation = config_.activation,
               .gate_up = arena_.gate_up,
               .out = arena_.ffn,
               .rows = rows,
               .width = width},
              stream_),
        "gated");
}

/// Where the gated product of the batch's rows is then. Of few rows one kernel does it all.
const void* CudaOps::multiply_gated(const Matrix& weights, const void* x) {
  auto product = by_few_rows(weights, x, arena_.ffn_of_few);
  if (!product) {
    multiply(weights, x, arena_.gate_up, rows_of_batch_, dtype_);
    gate(rows_of_batch_, weights.n / 2);
    return arena_.ffn;
  }
  product->gates = config_.activation;
  check(few_rows(*product, stream_), "a gated product of few rows");
  return arena_.ffn_of_few;
}

void CudaOps::feed_forward(uint32_t index, Rows from) {
  const LayerWeights& layer = weights_.layers[index];
  if (layer.router.data == nullptr) {
    const void* gated = multiply_gated(layer.gate_up, at(from));
    multiply(layer.down, gated, at(Rows::kAdded), rows_of_batch_, dtype_);
    return;
  }
  const uint32_t top = config_.moe.top;
  const ChoiceNumbers numbers = choice_numbers(config_, limits_);
  auto* const first = reinterpret_cast<uint32_t*>(arena_.choices);
  const Choices choices{.count = rows_of_batch_ * top,
                        .chosen = first + numbers.chosen,
                        .weights = reinterpret_cast<float*>(first + numbers.weights),
                        .order = first + numbers.order,
                        .tiles = reinterpret_cast<ExpertTile*>(first + numbers.tiles)};
  choose_experts(layer, at(from), choices);
  multiply_choices(layer.gate_up, at(from), top, arena_.gate_up, choices);
  gate(choices.count, layer.down.k);
  multiply_choices(layer.down, arena_.ffn, 1, arena_.of_experts, choices);
  check(combine_choices({.dtype = dtype_,
                         .y = arena_.of_experts,
                         .weights = choices.weights,
                         .out = at(Rows::kAdded),
                         .rows = rows_of_batch_,
                         .top = top,
                         .width = config_.hidden_size},
                        stream_),
        "combine_choices");
}

void CudaOps::choose_experts(const LayerWeights& layer, const void* x, const Choices& choices) {
  const model::MoeConfig& moe = config_.moe;
  multiply(layer.router, x, arena_.routed, rows_of_batch_, DType::kF32);
  check(route({.logits = reinterpret_cast<const float*>(arena_.routed),
               .stride = result_stride(layer.router.n, DType::kF32),
               .rows = rows_of_batch_,
               .num_experts = moe.num_experts,
               .top = moe.top,
               .normalize = moe.normalize,
               .chosen = choices.chosen,
               .weights = choices.weights},
              stream_),
        "route");
  const uint32_t in_tile = tile_choices(choices.count, moe.num_experts);
  if (in_tile == 1) return;
  check(group_by_expert({.chosen = choices.chosen,
                         .choices = choices.count,
                         .num_experts = moe.num_experts,
                         .tile_choices = in_tile,
                         .order = choices.order,
                         .tiles = choices.tiles},
                        stream_),
        "group_by_expert");
}

void CudaOps::multiply_choices(const Matrix& weights, const void* x, uint32_t x_choices, void* y,
                               const Choices& choices) {
  if (weights.scales != nullptr) {
    return multiply_integers(weights, x, y, choices.count, dtype_, x_choices, choices);
  }
  check(expert_product({.dtype = dtype_,
                        .x = x,
                        .x_choices = x_choices,
                        .weights = weights.data,
                        .y = y,
                        .chosen = choices.chosen,
                        .choices = choices.count,
                        .num_experts = config_.moe.num_experts,
                        .n = weights.n,
                        .k = weights.k,
                        .order = choices.order,
                        .tiles = choices.tiles},
                       stream_),
        "expert_product");
}

}  // namespace quire::backend::cuda
