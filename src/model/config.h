#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "tensor/dtype.h"

namespace quire::model {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongrope };

struct RopeConfig {
  double theta = 10000.0;
  double partial = 1.0;  // the fraction of a head that is rotated, from its first element on
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double original_max_positions = 0.0;     // llama3, yarn, longrope
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  std::optional<double> attention_factor;  // yarn, longrope
  std::optional<double> mscale;            // yarn
  std::optional<double> mscale_all_dim;    // yarn
  bool truncate = true;                    // yarn
  // longrope: one divisor per rotated pair
  std::vector<double> short_factors;
  std::vector<double> long_factors;
};

enum class Activation : uint8_t { kSilu, kGeluTanh };

/// RMSNorm of q and k before RoPE: per head (Qwen 3, Gemma 3), or over all heads together (OLMo 2).
enum class QkNorm : uint8_t { kNone, kPerHead, kWhole };

/// How a layer encodes positions: not at all (SmolLM3), by ModelConfig::rope, or by local_rope.
enum class LayerRope : uint8_t { kNone, kMain, kLocal };

/// A feed-forward with experts instead of a dense one.
struct MoeConfig {
  uint32_t num_experts = 0;  // 0: the model has none
  uint32_t top = 0;          // experts per token
  uint32_t ffn_size = 0;     // of one expert
  bool normalize = false;    // whether the weights of a token's experts are normalized to sum 1
  std::vector<bool> layers;  // one per layer: whether it has experts; empty: all have
};

/// All that the decoder needs to know about a model, besides its weights.
struct ModelConfig {
  std::string architecture;  // "LlamaForCausalLM"
  std::string model_type;    // "llama"
  uint32_t vocab_size = 0;
  uint32_t hidden_size = 0;
  uint32_t num_layers = 0;
  uint32_t num_heads = 0;
  uint32_t num_kv_heads = 0;
  uint32_t head_dim = 0;
  uint32_t ffn_size = 0;
  uint32_t max_positions = 0;
  double rms_norm_eps = 1e-6;
  RopeConfig rope;
  std::optional<RopeConfig> local_rope;
  std::vector<LayerRope> layer_ropes;  // one per layer; empty: all kMain
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  double embedding_scale = 1.0;        // factor of the embeddings
  bool round_embedding_scale = false;  // whether the factor is rounded to the compute type (Gemma)
  double residual_scale = 1.0;         // factor of what attention and feed-forward add
  double attention_scale = 0.0;        // factor of q.k; 0: 1 / sqrt(head_dim)
  double logit_scale = 1.0;            // factor of the logits
  double attention_soft_cap = 0.0;     // of the attention scores; 0: none
  double logit_soft_cap = 0.0;         // 0: none
  std::vector<uint32_t> windows;       // per layer: sliding window in tokens, 0 = full attention
  MoeConfig moe;
  DType dtype = DType::kF32;  // that of the checkpoint

  std::optional<TokenId> bos;
  std::vector<TokenId> eos;  // from config.json and generation_config.json, sorted

  LayerRope layer_rope(uint32_t layer) const {
    return layer_ropes.empty() ? LayerRope::kMain : layer_ropes[layer];
  }
  bool has_experts(uint32_t layer) const {
    return moe.num_experts > 0 && (moe.layers.empty() || moe.layers[layer]);
  }
  /// The number of elements of a head that RoPE rotates.
  uint32_t rotary(const RopeConfig& of) const { return static_cast<uint32_t>(head_dim * of.partial); }
};

/// The config of a config.json, or its equivalent, that was read from `path`. `dtype_of_weights` is called if
/// it has no dtype. Throws Error with file and key; an unsupported architecture or value is an error and
/// never ignored. A key that the family does not know is logged as a warning.
ModelConfig parse_model_config(const json::value& parsed, const std::filesystem::path& path,
                               const std::function<DType()>& dtype_of_weights);
/// Adds the special tokens that a generation_config.json names.
void add_generation_config(const json::value& parsed, const std::filesystem::path& path, ModelConfig& config);
/// Limits every layer to the last `window` tokens; 0 leaves the model unchanged. A model that was not trained
/// this way gives different answers once a sequence is longer.
void limit_windows(ModelConfig& config, uint32_t window);

}  // namespace quire::model
