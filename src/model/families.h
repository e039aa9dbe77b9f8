#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"

namespace quire::model {

/// Which linear layers of attention have a bias.
enum class AttentionBias : uint8_t { kNone, kQkv, kByKey };  // kByKey: q, k, v and o if "attention_bias"

/// How a family's config.json says which layers have a sliding window. "layer_types" takes precedence, except
/// in families with one_mask.
enum class WindowRule : uint8_t {
  kNone,
  kEveryLayer,         // "sliding_window" (Mistral)
  kEveryLayerIfUsed,   // the same if "use_sliding_window" (Qwen 3 MoE)
  kFromLayerUpon,      // "use_sliding_window", from layer "max_window_layers" on (Qwen)
  kAllButEveryNth,     // all layers except every window_pattern-th (Gemma)
  kLayersWithoutRope,  // "use_sliding_window": without layer_types, in the layers without RoPE (SmolLM3)
};

/// How a family's config.json describes its experts.
enum class MoeRule : uint8_t { kNone, kMixtral, kQwen3 };

/// The names of a layer's tensors, after its prefix and without ".weight" and ".bias". Matrices that the
/// decoder fuses are lists, because some families store them already fused. Tensors that a family does not
/// have are empty.
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
  std::string_view expert_prefix = {};  // followed by the index and "."
  std::span<const std::string_view> expert_gate_up = {};
  std::string_view expert_down = {};
};

/// The prefixes under which a checkpoint has the text model.
struct TensorRoot {
  std::string_view prefix;  // of all tensors except the head
  std::string_view head;
};

struct ModelTensors {
  std::span<const TensorRoot> roots;  // those found in published checkpoints, the usual one first
  std::string_view embedding = "embed_tokens";
  std::string_view layer_prefix = "layers.";  // followed by the index and "."
  LayerTensors layer;
  std::string_view final_norm = "norm";
};

/// The properties of a family: its names and flags, and the defaults for keys that its config.json may omit,
/// as in its configuration class in transformers.
struct Family {
  std::string_view architecture;  // from "architectures" of config.json
  std::string_view model_type;
  const ModelTensors* tensors;
  std::span<const std::string_view> keys;  // the keys that it reads in addition to those of all families
  bool nested = false;                     // whether its keys are in "text_config"

  uint32_t default_vocab_size = 0;  // 0: the key is required
  uint32_t default_heads = 0;       // 0: the key is required
  uint32_t default_kv_heads = 0;    // 0: as many as query heads
  uint32_t default_head_dim = 0;    // 0: hidden_size / num_attention_heads
  uint32_t default_max_positions = 2048;
  double default_eps = 1e-6;
  double default_theta = 10000.0;
  bool default_tied = false;

  AttentionBias attention_bias = AttentionBias::kNone;
  bool mlp_bias_key = false;  // whether "mlp_bias" is supported
  QkNorm qk_norm = QkNorm::kNone;
  bool norm_adds_one = false;  // whether the factors of norms are stored minus 1
  bool partial_rotary = false;
  bool longrope = false;
  bool local_rope = false;      // whether layers with a window have a separate RoPE
  bool no_rope_layers = false;  // "no_rope_layers", "no_rope_layer_interval"
  bool multipliers = false;     // Granite's four multipliers
  // Gemma's features: embeddings times sqrt(hidden_size), "query_pre_attn_scalar", "hidden_activation", soft
  // caps
  bool gemma = false;
  double default_attention_soft_cap = 0.0;
  double default_logit_soft_cap = 0.0;
  bool attention_soft_cap_key = false;

  WindowRule windows = WindowRule::kNone;
  bool one_mask = false;  // all layers have the same window, whatever "layer_types" says, as in transformers
  uint32_t default_window = 0;  // if "sliding_window" is absent (null means none)
  uint32_t window_pattern = 0;  // kAllButEveryNth: the default of "sliding_window_pattern"
  MoeRule moe = MoeRule::kNone;
};

/// All families that quire supports.
std::span<const Family> families();
/// Null if unknown.
const Family* find_family(std::string_view architecture);
const Family* find_family_of_type(std::string_view model_type);
/// The family of a model. Throws Error if there is none.
const Family& family_of(const ModelConfig& config);

/// The features of an unsupported architecture that the families lack; empty if quire does not know it.
std::string_view what_differs(std::string_view architecture);

}  // namespace quire::model
