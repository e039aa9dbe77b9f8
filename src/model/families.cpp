#include "model/families.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::model {
namespace {

using Name = std::string_view;

constexpr std::array<TensorRoot, 1> kPlainRoot = {TensorRoot{"model.", "lm_head"}};
// As Google published them, and as transformers writes them since 4.52.
constexpr std::array<TensorRoot, 2> kNestedRoots = {
    TensorRoot{"language_model.model.", "language_model.lm_head"},
    TensorRoot{"model.language_model.", "lm_head"}};

constexpr std::array<Name, 3> kSplitQkv = {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};
constexpr std::array<Name, 2> kSplitGateUp = {"mlp.gate_proj", "mlp.up_proj"};

// The names that Llama's implementation in transformers began.
constexpr LayerTensors kLlamaLayer = {.attention_norm = "input_layernorm",
                                      .q_norm = "self_attn.q_norm",
                                      .k_norm = "self_attn.k_norm",
                                      .qkv = kSplitQkv,
                                      .o = "self_attn.o_proj",
                                      .ffn_norm = "post_attention_layernorm",
                                      .gate_up = kSplitGateUp,
                                      .down = "mlp.down_proj"};
constexpr ModelTensors kLlamaTensors = {.roots = kPlainRoot, .layer = kLlamaLayer};

constexpr std::array<Name, 1> kFusedQkv = {"self_attn.qkv_proj"};
constexpr std::array<Name, 1> kFusedGateUp = {"mlp.gate_up_proj"};
constexpr ModelTensors phi3_tensors() {
  ModelTensors out = kLlamaTensors;
  out.layer.qkv = kFusedQkv;
  out.layer.gate_up = kFusedGateUp;
  return out;
}
constexpr ModelTensors kPhi3Tensors = phi3_tensors();

constexpr ModelTensors gemma_tensors(std::span<const TensorRoot> roots) {
  ModelTensors out = kLlamaTensors;
  out.roots = roots;
  out.layer.post_attention_norm = "post_attention_layernorm";
  out.layer.ffn_norm = "pre_feedforward_layernorm";
  out.layer.post_ffn_norm = "post_feedforward_layernorm";
  return out;
}
constexpr ModelTensors kGemmaTensors = gemma_tensors(kPlainRoot);
constexpr ModelTensors kNestedGemmaTensors = gemma_tensors(kNestedRoots);

constexpr ModelTensors olmo2_tensors() {
  ModelTensors out = kLlamaTensors;
  out.layer.attention_norm = {};
  out.layer.post_attention_norm = "post_attention_layernorm";
  out.layer.ffn_norm = {};
  out.layer.post_ffn_norm = "post_feedforward_layernorm";
  return out;
}
constexpr ModelTensors kOlmo2Tensors = olmo2_tensors();

constexpr std::array<Name, 2> kMixtralGateUp = {"w1", "w3"};
constexpr ModelTensors mixtral_tensors() {
  ModelTensors out = kLlamaTensors;
  out.layer.router = "block_sparse_moe.gate";
  out.layer.expert_prefix = "block_sparse_moe.experts.";
  out.layer.expert_gate_up = kMixtralGateUp;
  out.layer.expert_down = "w2";
  return out;
}
constexpr ModelTensors kMixtralTensors = mixtral_tensors();

constexpr std::array<Name, 2> kQwenGateUp = {"gate_proj", "up_proj"};
constexpr ModelTensors qwen3_moe_tensors() {
  ModelTensors out = kLlamaTensors;
  out.layer.router = "mlp.gate";
  out.layer.expert_prefix = "mlp.experts.";
  out.layer.expert_gate_up = kQwenGateUp;
  out.layer.expert_down = "down_proj";
  return out;
}
constexpr ModelTensors kQwen3MoeTensors = qwen3_moe_tensors();

// Keys beyond those that every family reads (config_keys.cpp).
constexpr std::array<Name, 2> kLlamaKeys = {"attention_bias", "mlp_bias"};
constexpr std::array<Name, 1> kWindowKeys = {"sliding_window"};
constexpr std::array<Name, 3> kQwen2Keys = {"sliding_window", "use_sliding_window", "max_window_layers"};
constexpr std::array<Name, 4> kQwen3Keys = {"sliding_window", "use_sliding_window", "max_window_layers",
                                            "attention_bias"};
constexpr std::array<Name, 3> kPhi3Keys = {"sliding_window", "original_max_position_embeddings",
                                           "partial_rotary_factor"};
constexpr std::array<Name, 6> kSmolLm3Keys = {"attention_bias", "mlp_bias",
                                              "sliding_window", "use_sliding_window",
                                              "no_rope_layers", "no_rope_layer_interval"};
constexpr std::array<Name, 6> kGemma2Keys = {"hidden_activation",       "query_pre_attn_scalar",
                                             "sliding_window",          "attn_logit_softcapping",
                                             "final_logit_softcapping", "attention_bias"};
constexpr std::array<Name, 7> kGemma3Keys = {
    "hidden_activation",    "query_pre_attn_scalar",   "sliding_window", "sliding_window_pattern",
    "rope_local_base_freq", "final_logit_softcapping", "attention_bias"};
constexpr std::array<Name, 6> kGraniteKeys = {"attention_bias",       "mlp_bias",
                                              "embedding_multiplier", "residual_multiplier",
                                              "attention_multiplier", "logits_scaling"};
constexpr std::array<Name, 1> kOlmo2Keys = {"attention_bias"};
constexpr std::array<Name, 3> kMixtralKeys = {"sliding_window", "num_local_experts", "num_experts_per_tok"};
constexpr std::array<Name, 10> kQwen3MoeKeys = {
    "sliding_window",      "use_sliding_window",  "attention_bias",        "num_experts",
    "num_local_experts",   "num_experts_per_tok", "moe_intermediate_size", "norm_topk_prob",
    "decoder_sparse_step", "mlp_only_layers"};

constexpr Family kGemma3Text = {.architecture = "Gemma3ForCausalLM",
                                .model_type = "gemma3_text",
                                .tensors = &kGemmaTensors,
                                .keys = kGemma3Keys,
                                .default_vocab_size = 262208,
                                .default_heads = 8,
                                .default_kv_heads = 4,
                                .default_head_dim = 256,
                                .default_max_positions = 131072,
                                .default_theta = 1e6,
                                .default_tied = true,
                                .attention_bias = AttentionBias::kByKey,
                                .qk_norm = QkNorm::kPerHead,
                                .norm_adds_one = true,
                                .local_rope = true,
                                .gemma = true,
                                .windows = WindowRule::kAllButEveryNth,
                                .default_window = 4096,
                                .window_pattern = 6};

constexpr Family nested_gemma3() {
  Family out = kGemma3Text;
  out.architecture = "Gemma3ForConditionalGeneration";
  out.model_type = "gemma3";
  out.tensors = &kNestedGemmaTensors;
  out.nested = true;
  return out;
}

constexpr std::array kFamilies = {
    Family{.architecture = "LlamaForCausalLM",
           .model_type = "llama",
           .tensors = &kLlamaTensors,
           .keys = kLlamaKeys,
           .attention_bias = AttentionBias::kByKey,
           .mlp_bias_key = true},
    Family{.architecture = "MistralForCausalLM",
           .model_type = "mistral",
           .tensors = &kLlamaTensors,
           .keys = kWindowKeys,
           .default_kv_heads = 8,
           .default_max_positions = 131072,
           .windows = WindowRule::kEveryLayer,
           .default_window = 4096},
    Family{.architecture = "Qwen2ForCausalLM",
           .model_type = "qwen2",
           .tensors = &kLlamaTensors,
           .keys = kQwen2Keys,
           .default_kv_heads = 32,
           .default_max_positions = 32768,
           .attention_bias = AttentionBias::kQkv,
           .windows = WindowRule::kFromLayerUpon,
           .default_window = 4096},
    Family{.architecture = "Qwen3ForCausalLM",
           .model_type = "qwen3",
           .tensors = &kLlamaTensors,
           .keys = kQwen3Keys,
           .default_kv_heads = 32,
           .default_head_dim = 128,
           .default_max_positions = 32768,
           .attention_bias = AttentionBias::kByKey,
           .qk_norm = QkNorm::kPerHead,
           .windows = WindowRule::kFromLayerUpon,
           .default_window = 4096},
    Family{.architecture = "Phi3ForCausalLM",
           .model_type = "phi3",
           .tensors = &kPhi3Tensors,
           .keys = kPhi3Keys,
           .default_max_positions = 4096,
           .default_eps = 1e-5,
           .partial_rotary = true,
           .longrope = true,
           .windows = WindowRule::kEveryLayer,
           .one_mask = true},
    Family{.architecture = "SmolLM3ForCausalLM",
           .model_type = "smollm3",
           .tensors = &kLlamaTensors,
           .keys = kSmolLm3Keys,
           .default_kv_heads = 4,
           .default_max_positions = 32768,
           .default_theta = 2e6,
           .default_tied = true,
           .attention_bias = AttentionBias::kByKey,
           .mlp_bias_key = true,
           .no_rope_layers = true,
           .windows = WindowRule::kLayersWithoutRope},
    Family{.architecture = "Gemma2ForCausalLM",
           .model_type = "gemma2",
           .tensors = &kGemmaTensors,
           .keys = kGemma2Keys,
           .default_kv_heads = 4,
           .default_head_dim = 256,
           .default_max_positions = 8192,
           .default_tied = true,
           .attention_bias = AttentionBias::kByKey,
           .norm_adds_one = true,
           .gemma = true,
           .default_attention_soft_cap = 50.0,
           .default_logit_soft_cap = 30.0,
           .attention_soft_cap_key = true,
           .windows = WindowRule::kAllButEveryNth,
           .default_window = 4096,
           .window_pattern = 2},
    kGemma3Text,
    nested_gemma3(),
    Family{.architecture = "GraniteForCausalLM",
           .model_type = "granite",
           .tensors = &kLlamaTensors,
           .keys = kGraniteKeys,
           .attention_bias = AttentionBias::kByKey,
           .mlp_bias_key = true,
           .multipliers = true},
    Family{.architecture = "Olmo2ForCausalLM",
           .model_type = "olmo2",
           .tensors = &kOlmo2Tensors,
           .keys = kOlmo2Keys,
           .default_eps = 1e-5,
           .attention_bias = AttentionBias::kByKey,
           .qk_norm = QkNorm::kWhole},
    Family{.architecture = "MixtralForCausalLM",
           .model_type = "mixtral",
           .tensors = &kMixtralTensors,
           .keys = kMixtralKeys,
           .default_kv_heads = 8,
           .default_max_positions = 131072,
           .default_eps = 1e-5,
           .default_theta = 1e6,
           .windows = WindowRule::kEveryLayer,
           .one_mask = true,
           .moe = MoeRule::kMixtral},
    Family{.architecture = "Qwen3MoeForCausalLM",
           .model_type = "qwen3_moe",
           .tensors = &kQwen3MoeTensors,
           .keys = kQwen3MoeKeys,
           .default_kv_heads = 4,
           .default_max_positions = 32768,
           .attention_bias = AttentionBias::kByKey,
           .qk_norm = QkNorm::kPerHead,
           .windows = WindowRule::kEveryLayerIfUsed,
           .one_mask = true,
           .default_window = 4096,
           .moe = MoeRule::kQwen3},
};

struct Stranger {
  std::string_view architecture;
  std::string_view differs;
};

constexpr std::array kStrangers = {
    Stranger{"GPT2LMHeadModel", "learned positions and LayerNorm"},
    Stranger{"GPTNeoXForCausalLM", "LayerNorm and parallel blocks"},
    Stranger{"GPTJForCausalLM", "LayerNorm, parallel blocks and interleaved RoPE"},
    Stranger{"OPTForCausalLM", "learned positions and LayerNorm"},
    Stranger{"BloomForCausalLM", "ALiBi and LayerNorm"},
    Stranger{"FalconForCausalLM", "LayerNorm and parallel blocks"},
    Stranger{"MptForCausalLM", "ALiBi and LayerNorm"},
    Stranger{"PhiForCausalLM", "LayerNorm and parallel blocks"},
    Stranger{"Phi3SmallForCausalLM", "block-sparse attention"},
    Stranger{"PhiMoEForCausalLM", "LayerNorm and its own router"},
    Stranger{"StableLmForCausalLM", "LayerNorm"},
    Stranger{"Starcoder2ForCausalLM", "LayerNorm"},
    Stranger{"CohereForCausalLM", "LayerNorm, parallel blocks and interleaved RoPE"},
    Stranger{"Cohere2ForCausalLM", "LayerNorm, parallel blocks and interleaved RoPE"},
    Stranger{"Gemma3nForConditionalGeneration", "per-layer embeddings and shared K/V"},
    Stranger{"OlmoForCausalLM", "LayerNorm without weights"},
    Stranger{"Olmo3ForCausalLM", "RoPE by layer type"},
    Stranger{"Glm4ForCausalLM", "interleaved RoPE"},
    Stranger{"DeepseekV2ForCausalLM", "latent attention and shared experts"},
    Stranger{"DeepseekV3ForCausalLM", "latent attention and shared experts"},
    Stranger{"Qwen2MoeForCausalLM", "shared experts"},
    Stranger{"Qwen3NextForCausalLM", "linear attention"},
    Stranger{"GraniteMoeForCausalLM", "experts in one tensor and its own router"},
    Stranger{"GptOssForCausalLM", "attention sinks and experts with biases"},
    Stranger{"Llama4ForConditionalGeneration", "chunked attention and shared experts"},
    Stranger{"MiniCPM3ForCausalLM", "latent attention"},
    Stranger{"MambaForCausalLM", "state-space layers"},
    Stranger{"JambaForCausalLM", "state-space layers"},
    Stranger{"BertForMaskedLM", "bidirectional attention"},
    Stranger{"T5ForConditionalGeneration", "an encoder"},
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

const Family& family_of(const ModelConfig& config) {
  const Family* family = find_family(config.architecture);
  if (family == nullptr) throw Error(fmt::format("{} is not supported", config.architecture));
  return *family;
}

std::string_view what_differs(std::string_view architecture) {
  const auto* found = std::find_if(kStrangers.begin(), kStrangers.end(),
                                   [&](const Stranger& s) { return s.architecture == architecture; });
  return found == kStrangers.end() ? std::string_view() : found->differs;
}

}  // namespace quire::model
