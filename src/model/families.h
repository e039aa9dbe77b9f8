#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"

namespace quire::model {

/// Which linear layers of the attention have a bias.
enum class AttentionBias : uint8_t { kNone, kQkv, kByKey };  // kByKey: q, k, v and o if "attention_bias"

/// How a family's config.json says which layers see only a window. "layer_types" says it first, but for
/// those with one_mask.
enum class WindowRule : uint8_t {
  kNone,
  kEveryLayer,         // "sliding_window" (Mistral)
  kEveryLayerIfUsed,   // the same where "use_sliding_window" (Qwen 3 MoE)
  kFromLayerUpon,      // "use_sliding_window", from layer "max_window_layers" on (Qwen)
  kAllButEveryNth,     // every window_pattern-th layer sees all (Gemma)
  kLayersWithoutRope,  // "use_sliding_window", unless layer_types: in the layers without RoPE (SmolLM3)
};

/// Where a family's config.json has its experts.
enum class MoeRule : uint8_t { kNone, kMixtral, kQwen3 };

/// The tensors of a layer, below its prefix, without ".weight" and ".bias". Matrices that the decoder fuses
/// are lists, as some families store them fused already. What a family does not have is empty.
struct LayerTensors {
  std::string_view attention_norm;
  std::string_view post_attention_norm = {};
  std::string_view q_norm = {};
  std::string_view k_norm = {};
  std::span<const std::string_view> qkv;
  std::string_view o;
  std::string_view ffn_norm;
  std::string_view post_ffn_norm = {};
  std::span<const std::string_view> gate_up;
  std::string_view down;
  std::string_view router = {};
  std::string_view expert_prefix = {};  // then the index, then "."
  std::span<const std::string_view> expert_gate_up = {};
  std::string_view expert_down = {};
};

/// Where a checkpoint keeps the text model.
struct TensorRoot {
  std::string_view prefix;  // of all but the head
  std::string_view head;
};

struct ModelTensors {
  std::span<const TensorRoot> roots;  // as they are found in the wild, the usual one first
  std::string_view embedding = "embed_tokens";
  std::string_view layer_prefix = "layers.";  // then the index, then "."
  LayerTensors layer;
  std::string_view final_norm = "norm";
};

/// What sets one family apart: its names and flags, and the defaults that its config.json may leave out, as
/// its configuration class in transformers has them.
struct Family {
  std::string_view architecture;  // of config.json's "architectures"
  std::string_view model_type;
  const ModelTensors* tensors;
  std::span<const std::string_view> keys;  // that it reads beyond those of all families
  bool nested = false;                     // its keys are in "text_config"

  uint32_t default_vocab_size = 0;  // 0: the key must be there
  uint32_t default_heads = 0;       // 0: the key must be there
  uint32_t default_kv_heads = 0;    // 0: as many as query heads
  uint32_t default_head_dim = 0;    // 0: hidden_size / num_attention_heads
  uint32_t default_max_positions = 2048;
  double default_eps = 1e-6;
  double default_theta = 10000.0;
  bool default_tied = false;

  AttentionBias attention_bias = AttentionBias::kNone;
  bool mlp_bias_key = false;  // "mlp_bias" is honoured
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_adds_one = false;  // a norm's factors are stored less 1
  bool partial_rotary = false;
  bool longrope = false;
  bool local_rope = false;      // layers with a window have a RoPE of their own
  bool no_rope_layers = false;  // "no_rope_layers", "no_rope_layer_interval"
  bool multipliers = false;     // Granite's four
  // Gemma's ways: embeddings times sqrt(hidden_size), "query_pre_attn_scalar", "hidden_activation", soft caps
  bool gemma = false;
  double default_attention_soft_cap = 0.0;
  double default_logit_soft_cap = 0.0;
  bool attention_soft_cap_key = false;

  WindowRule windows = WindowRule::kNone;
  bool one_mask = false;        // all layers have the same, whatever "layer_types" says, as in transformers
  uint32_t default_window = 0;  // where "sliding_window" is absent (null means none)
  uint32_t window_pattern = 0;  // kAllButEveryNth: default of "sliding_window_pattern"
  MoeRule moe = MoeRule::kNone;
};

/// All that quire knows.
std::span<const Family> families();
/// Null if unknown.
const Family* find_family(std::string_view architecture);
const Family* find_family_of_type(std::string_view model_type);
/// That of a model. Throws Error if there is none.
const Family& family_of(const ModelConfig& config);

/// What an architecture outside of the families has that they have not; empty if quire has never heard of
/// it.
std::string_view what_differs(std::string_view architecture);

}  // namespace quire::model
