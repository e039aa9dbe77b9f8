#include "model/families.h"

#include <algorithm>
#include <array>

namespace quire {
namespace {

constexpr std::array<std::string_view, 3> kSplitQkv = {"self_attn.q_proj", "self_attn.k_proj",
                                                       "self_attn.v_proj"};
constexpr std::array<std::string_view, 2> kSplitGateUp = {"mlp.gate_proj", "mlp.up_proj"};

// The names that Llama's implementation in transformers began.
constexpr ModelTensors kLlamaTensors = {
    .embedding = "model.embed_tokens",
    .layer_prefix = "model.layers.",
    .layer = {.attention_norm = "input_layernorm",
              .q_norm = "self_attn.q_norm",
              .k_norm = "self_attn.k_norm",
              .qkv = kSplitQkv,
              .o = "self_attn.o_proj",
              .ffn_norm = "post_attention_layernorm",
              .gate_up = kSplitGateUp,
              .down = "mlp.down_proj"},
    .final_norm = "model.norm",
    .head = "lm_head",
};

// Defaults as the configuration classes of transformers have them.
constexpr std::array kFamilies = {
    Family{.architecture = "LlamaForCausalLM",
           .model_type = "llama",
           .default_max_positions = 2048,
           .default_kv_heads = 0,
           .default_head_dim = 0,
           .attention_bias = AttentionBias::kByKey,
           .mlp_bias_key = true,
           .qk_norm = false,
           .windows = WindowRule::kNone,
           .default_window = 0,
           .tensors = &kLlamaTensors},
    Family{.architecture = "MistralForCausalLM",
           .model_type = "mistral",
           .default_max_positions = 131072,
           .default_kv_heads = 8,
           .default_head_dim = 0,
           .attention_bias = AttentionBias::kNone,
           .mlp_bias_key = false,
           .qk_norm = false,
           .windows = WindowRule::kEveryLayer,
           .default_window = 4096,
           .tensors = &kLlamaTensors},
    Family{.architecture = "Qwen2ForCausalLM",
           .model_type = "qwen2",
           .default_max_positions = 32768,
           .default_kv_heads = 32,
           .default_head_dim = 0,
           .attention_bias = AttentionBias::kQkv,
           .mlp_bias_key = false,
           .qk_norm = false,
           .windows = WindowRule::kFromLayerUpon,
           .default_window = 4096,
           .tensors = &kLlamaTensors},
    Family{.architecture = "Qwen3ForCausalLM",
           .model_type = "qwen3",
           .default_max_positions = 32768,
           .default_kv_heads = 32,
           .default_head_dim = 128,
           .attention_bias = AttentionBias::kByKey,
           .mlp_bias_key = false,
           .qk_norm = true,
           .windows = WindowRule::kFromLayerUpon,
           .default_window = 4096,
           .tensors = &kLlamaTensors},
};

}  // namespace

std::span<const Family> families() { return kFamilies; }

const Family* find_family(std::string_view architecture) {
  const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& f) { return f.architecture == architecture; });
  return found == kFamilies.end() ? nullptr : found;
}

const Family* find_family_of_type(std::string_view model_type) {
  const auto* found = std::find_if(kFamilies.begin(), kFamilies.end(),
                                   [&](const Family& f) { return f.model_type == model_type; });
  return found == kFamilies.end() ? nullptr : found;
}

}  // namespace quire
