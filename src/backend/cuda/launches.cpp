#include "backend/cuda/launches.h"

#include "backend/cuda/expert_product.h"
#include "formats/model_tensors.h"

namespace quire::backend::cuda {

uint32_t step_launches(const model::ModelConfig& config) {
  const formats::TensorNames names = formats::names_of(config, nullptr);
  const model::LayerTensors& tensors = names.tensors.layer;
  const auto has = [](auto norm) { return norm.empty() ? 0U : 1U; };
  constexpr uint32_t kAttention = 4;    // q, k and v; RoPE; attention; its projection
  constexpr uint32_t kFeedForward = 3;  // gate and up; gated; down
  constexpr uint32_t kAdds = 2;         // to the residual, each with the norm behind it if there is one
  const uint32_t of_heads = config.qk_norm == model::QkNorm::kNone ? 0 : 2;
  const uint32_t layer = kAttention + kFeedForward + kAdds + of_heads + has(tensors.post_attention_norm) +
                         has(tensors.post_ffn_norm);
  // The router; its choice; the sum of what experts give; the choices of each expert put together.
  const uint32_t routing = 3 + (tile_choices(config.moe.top, config.moe.num_experts) > 1 ? 1 : 0);
  uint32_t layers_of_experts = 0;
  for (uint32_t i = 0; i < config.num_layers; ++i) layers_of_experts += config.has_experts(i) ? 1 : 0;
  const uint32_t embeddings = config.embedding_scale == 1.0 ? 1 : 2;
  constexpr uint32_t kLast = 4;  // the rows that are asked for, their norm, the head, sampling
  const uint32_t logits = (config.logit_scale == 1.0 ? 0 : 1) + (config.logit_soft_cap == 0.0 ? 0 : 1);
  return embeddings + has(tensors.attention_norm) + config.num_layers * layer + layers_of_experts * routing +
         kLast + logits;
}

}  // namespace quire::backend::cuda
