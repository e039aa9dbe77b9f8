#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/model_shape.h"
#include "tensor/dtype.h"

namespace quire::model {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn, kLongrope };

struct RopeConfig {
  double theta = 10000.0;
  double partial = 1.0;  // the part of a head, from its first element on, that is rotated
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

/// RMSNorm of q and k before RoPE: of each head (Qwen 3, Gemma 3), or over all heads at once (OLMo 2).
enum class QkNorm : uint8_t { kNone, kPerHead, kWhole };

/// How a layer knows where a token stands: not at all (SmolLM3), by ModelConfig::rope, or by its local_rope.
enum class LayerRope : uint8_t { kNone, kMain, kLocal };

/// A feed-forward of experts in the place of the dense one.
struct MoeConfig {
  uint32_t num_experts = 0;  // 0: the model has none
  uint32_t top = 0;          // experts of a token
  uint32_t ffn_size = 0;     // of one expert
  bool normalize = false;    // the weights of a token's experts sum to 1
  std::vector<bool> layers;  // which have experts, one a layer; empty: all
};

/// All that the decoder needs to know of a model besides its weights.
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
  std::vector<LayerRope> layer_ropes;  // one a layer; empty: all kMain
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  QkNorm qk_norm = QkNorm::kNone;
  Activation activation = Activation::kSilu;
  double embedding_scale = 1.0;        // times the embeddings
  bool round_embedding_scale = false;  // the factor is of the compute type (Gemma)
  double residual_scale = 1.0;         // times what attention and feed-forward add
  double attention_scale = 0.0;        // times q.k; 0: 1 / sqrt(head_dim)
  double logit_scale = 1.0;            // times the logits
  double attention_soft_cap = 0.0;     // of the scores; 0: none
  double logit_soft_cap = 0.0;         // 0: none
  std::vector<uint32_t> windows;       // per layer: sliding window in tokens, 0 = full attention
  MoeConfig moe;
  DType dtype = DType::kF32;  // the checkpoint's

  std::optional<TokenId> bos;
  std::vector<TokenId> eos;  // config.json's and generation_config.json's, sorted

  LayerRope layer_rope(uint32_t layer) const {
    return layer_ropes.empty() ? LayerRope::kMain : layer_ropes[layer];
  }
  bool has_experts(uint32_t layer) const {
    return moe.num_experts > 0 && (moe.layers.empty() || moe.layers[layer]);
  }
  /// Elements of a head that `rope` rotates.
  uint32_t rotary(const RopeConfig& of) const { return static_cast<uint32_t>(head_dim * of.partial); }
};

/// What a config.json says, or what stands for it, read from `path`. `dtype_of_weights` is asked where it has
/// no dtype. Throws Error with file and key; an architecture or a value that cannot be honoured is named,
/// never ignored. A key that the family does not know is logged as a warning.
ModelConfig parse_model_config(const json::value& parsed, const std::filesystem::path& path,
                               const std::function<DType()>& dtype_of_weights);
/// Adds the special tokens that a generation_config.json names.
void add_generation_config(const json::value& parsed, const std::filesystem::path& path, ModelConfig& config);
/// Lets no layer see more than the last `window` tokens; 0 leaves the model as it is. One that was not
/// trained so gives other answers once a sequence is longer.
void limit_windows(ModelConfig& config, uint32_t window);

}  // namespace quire::model
