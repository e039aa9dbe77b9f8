#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/context.h"

// A feed-forward with experts, of which each row uses a few (Shazeer et al. 2017; Jiang et al. 2024,
// Mixtral). A row's result depends on that row alone.
namespace quire::kernels {

/// For each row of `logits` [rows, num_experts] (f32, overwritten): softmax over all experts, then the `top`
/// (<= num_experts) most probable, largest first and the first among equals; experts and weights are [rows,
/// top]. A weight is the probability, divided by the sum of the chosen probabilities if `normalize`.
void route(KernelContext& context, float* logits, size_t rows, uint32_t num_experts, uint32_t top,
           bool normalize, uint32_t* experts, float* weights);

/// out[i, :] = x[rows[i], :]; rows of `width`, without gaps.
void gather_rows(KernelContext& context, const float* x, std::span<const uint32_t> rows, size_t width,
                 float* out);

/// out[r, :] = sum over j ascending of weights[r, j] * y[places[r, j], :]; places and weights are
/// [rows, top], rows of y and of out are `width`, without gaps.
void combine_rows(KernelContext& context, const float* y, const uint32_t* places, const float* weights,
                  uint32_t top, float* out, size_t rows, size_t width);

}  // namespace quire::kernels
