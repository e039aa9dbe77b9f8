#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "model/config.h"

namespace quire {

/// Which linear layers of the attention have a bias.
enum class AttentionBias : uint8_t { kNone, kQkv, kByKey };  // kByKey: q, k, v and o if "attention_bias"

/// How a family's config.json says which layers see only a window.
enum class WindowRule : uint8_t {
  kNone,
  kEveryLayer,     // "sliding_window" (Mistral)
  kFromLayerUpon,  // "use_sliding_window", from layer "max_window_layers" on (Qwen)
};

/// The tensors of a layer, below its prefix, without ".weight" and ".bias". Matrices that the decoder fuses
/// are lists, as some families store them fused already.
struct LayerTensors {
  std::string_view attention_norm;
  std::string_view q_norm;
  std::string_view k_norm;
  std::span<const std::string_view> qkv;
  std::string_view o;
  std::string_view ffn_norm;
  std::span<const std::string_view> gate_up;
  std::string_view down;
};

struct ModelTensors {
  std::string_view embedding;
  std::string_view layer_prefix;  // "model.layers.", then the index, then "."
  LayerTensors layer;
  std::string_view final_norm;
  std::string_view head;
};

/// What sets one family apart: its names and flags, and the defaults that its config.json may leave out.
struct Family {
  std::string_view architecture;  // of config.json's "architectures"
  std::string_view model_type;
  uint32_t default_max_positions;
  uint32_t default_kv_heads;  // 0: as many as query heads
  uint32_t default_head_dim;  // 0: hidden_size / num_attention_heads
  AttentionBias attention_bias;
  bool mlp_bias_key;  // "mlp_bias" is honoured
  bool qk_norm;
  WindowRule windows;
  uint32_t default_window;  // where "sliding_window" is absent (null means none)
  const ModelTensors* tensors;
};

/// All that quire knows.
std::span<const Family> families();
/// Null if unknown.
const Family* find_family(std::string_view architecture);
const Family* find_family_of_type(std::string_view model_type);

}  // namespace quire
