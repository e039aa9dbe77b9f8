#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/model_shape.h"
#include "base/sampling_params.h"
#include "tensor/dtype.h"

namespace quire {

enum class RopeScaling : uint8_t { kNone, kLinear, kLlama3, kYarn };

struct RopeConfig {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::kNone;
  double factor = 1.0;
  double low_freq_factor = 1.0;            // llama3
  double high_freq_factor = 4.0;           // llama3
  double original_max_positions = 0.0;     // llama3, yarn
  double beta_fast = 32.0;                 // yarn
  double beta_slow = 1.0;                  // yarn
  std::optional<double> attention_factor;  // yarn
  std::optional<double> mscale;            // yarn
  std::optional<double> mscale_all_dim;    // yarn
  bool truncate = true;                    // yarn
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
  bool tie_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool mlp_bias = false;
  bool qk_norm = false;           // RMSNorm on each head of q and k before RoPE (Qwen3)
  std::vector<uint32_t> windows;  // per layer: sliding window in tokens, 0 = full attention
  DType dtype = DType::kF32;      // the checkpoint's

  std::optional<TokenId> bos;
  std::vector<TokenId> eos;  // config.json's and generation_config.json's, sorted
};

/// Reads config.json and generation_config.json of a Hugging Face directory, or what a GGUF file says
/// instead. Throws Error with file and key; an architecture or a value that cannot be honoured is named,
/// never ignored.
ModelConfig load_model_config(const std::filesystem::path& model);
SamplingDefaults load_sampling_defaults(const std::filesystem::path& model);

}  // namespace quire
