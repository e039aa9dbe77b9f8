#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "kernels/context.h"
#include "tensor/tensor.h"

// Ops on rows of activations, f32. A row's result depends on that row alone.
namespace quire::kernels {

/// y[r, i] = x[r, i] / sqrt(mean over i of x[r, i]^2 + eps) * weight[i]. Zhang and Sennrich 2019. y may be x.
/// Rows of `width`, row strides ldx and ldy in elements.
void rms_norm(KernelContext& context, const float* x, size_t ldx, const float* weight, float eps, float* y,
              size_t ldy, size_t rows, size_t width);

/// y += factor * x, element by element.
void add_in_place(KernelContext& context, float* y, const float* x, size_t count, float factor = 1.0F);

/// x *= factor.
void scale_in_place(KernelContext& context, float* x, size_t count, float factor);

/// x = cap * tanh(x / cap). Gemma team 2024 (Gemma 2).
void soft_cap(KernelContext& context, float* x, size_t count, float cap);

/// out[r, i] = silu(gate_up[r, i]) * gate_up[r, width + i]; gate_up rows are 2 * width, out rows width.
/// Shazeer 2020 (SwiGLU).
void swiglu(KernelContext& context, const float* gate_up, float* out, size_t rows, size_t width);

/// The same with the tanh form of GELU (Hendrycks and Gimpel 2016) instead of silu: gelu(x) = 0.5 x (1 +
/// tanh(sqrt(2 / pi) (x + 0.044715 x^3))).
void geglu(KernelContext& context, const float* gate_up, float* out, size_t rows, size_t width);

/// Rotates pairs (i, i + rotary/2) of each head in place (the "half-split" form of Hugging Face checkpoints),
/// leaving elements from `rotary` on unchanged. Su et al. 2021. x: rows of num_heads * head_dim with stride
/// ldx; cos_sin: [max_position][rotary] f32, cosines in the first half of a row and sines in the second;
/// positions[r] selects the row.
void rope(KernelContext& context, float* x, size_t ldx, size_t rows, uint32_t num_heads, uint32_t head_dim,
          uint32_t rotary, const float* cos_sin, const uint32_t* positions);

/// out[r, :] = table[tokens[r], :] converted to f32. Table [vocab, width], f32, f16 or bf16. REQUIRES: every
/// token is in it.
void embed(KernelContext& context, const TensorView& table, std::span<const TokenId> tokens, float* out);

}  // namespace quire::kernels
