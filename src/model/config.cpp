#include "model/config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "model/config_keys.h"
#include "model/families.h"
#include "model/layer_config.h"
#include "model/limits.h"
#include "model/rope_config.h"

namespace quire::model {
namespace {

uint32_t size_of(const JsonObject& config, std::string_view key, int64_t max) {
  return static_cast<uint32_t>(config.integer(key, 1, max));
}

uint32_t size_or(const JsonObject& config, std::string_view key, int64_t otherwise, int64_t max) {
  return static_cast<uint32_t>(config.integer_or(key, otherwise, 1, max));
}

const Family& family_of(const JsonObject& config) {
  std::string known;
  for (const Family& family : families()) {
    known += fmt::format("{}{}", known.empty() ? "" : ", ", family.architecture);
  }
  if (const json::value* listed = config.find("architectures")) {
    const json::array* names = listed->if_array();
    if (names == nullptr || names->empty() || !names->front().is_string()) {
      throw config.error("architectures", "a list of names was expected");
    }
    const std::string name(names->front().get_string());
    if (const Family* family = find_family(name)) return *family;
    const std::string_view differs = what_differs(name);
    const std::string why = differs.empty() ? "" : fmt::format(": it has {}", differs);
    throw config.error("architectures", fmt::format("{} is not supported{} (known: {})", name, why, known));
  }
  const std::string type = config.string("model_type");
  if (const Family* family = find_family_of_type(type)) return *family;
  throw config.error("model_type",
                     fmt::format("'{}' is not supported, and there is no 'architectures' ({})", type, known));
}

Activation read_activation(const JsonObject& config, const Family& family) {
  const char* key = family.gemma ? "hidden_activation" : "hidden_act";
  const std::string act = config.string_or(key, family.gemma ? "gelu_pytorch_tanh" : "silu");
  if (act == "silu" || act == "swish") return Activation::kSilu;
  if (act == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  throw config.error(key, fmt::format("'{}' is not supported (silu, gelu_pytorch_tanh)", act));
}

void read_sizes(const JsonObject& config, const Family& family, ModelConfig& out) {
  const auto size_unless = [&](std::string_view key, uint32_t otherwise, int64_t max) {
    return otherwise == 0 ? size_of(config, key, max) : size_or(config, key, otherwise, max);
  };
  out.vocab_size = size_unless("vocab_size", family.default_vocab_size, kMaxVocab);
  out.hidden_size = size_of(config, "hidden_size", kMaxWidth);
  out.num_layers = size_of(config, "num_hidden_layers", kMaxLayers);
  out.num_heads = size_unless("num_attention_heads", family.default_heads, kMaxHeads);
  out.ffn_size = size_of(config, "intermediate_size", kMaxFfn);
  out.max_positions = size_or(config, "max_position_embeddings", family.default_max_positions, kMaxPositions);
  out.num_kv_heads =
      size_or(config, "num_key_value_heads",
              family.default_kv_heads != 0 ? family.default_kv_heads : out.num_heads, kMaxHeads);
  if (out.num_heads % out.num_kv_heads != 0) {
    throw config.error("num_key_value_heads", fmt::format("{} does not divide num_attention_heads {}",
                                                          out.num_kv_heads, out.num_heads));
  }
  if (config.has("head_dim")) {
    out.head_dim = size_of(config, "head_dim", kMaxHeadDim);
  } else if (family.default_head_dim != 0) {
    out.head_dim = family.default_head_dim;
  } else if (out.hidden_size % out.num_heads == 0 && out.hidden_size / out.num_heads <= kMaxHeadDim) {
    out.head_dim = out.hidden_size / out.num_heads;
  } else {
    throw config.error(
        "num_attention_heads",
        fmt::format("{} heads in hidden_size {} give no valid head size, and there is no head_dim",
                    out.num_heads, out.hidden_size));
  }
  if (out.head_dim % 2 != 0) {
    throw config.error("head_dim", fmt::format("{} is odd, but RoPE rotates pairs", out.head_dim));
  }
  out.rms_norm_eps = config.number_or("rms_norm_eps", family.default_eps);
  if (!(out.rms_norm_eps >= 0.0) || out.rms_norm_eps > 1.0) {
    throw config.error("rms_norm_eps", fmt::format("{} is out of range [0, 1]", out.rms_norm_eps));
  }
}

void read_biases(const JsonObject& config, const Family& family, ModelConfig& out) {
  const bool by_key =
      family.attention_bias == AttentionBias::kByKey && config.boolean_or("attention_bias", false);
  out.qkv_bias = by_key || family.attention_bias == AttentionBias::kQkv;
  out.o_bias = by_key;
  out.mlp_bias = family.mlp_bias_key && config.boolean_or("mlp_bias", false);
}

/// A number in (0, 1e6], or `otherwise` if the key is absent; null: 0.
double positive_or(const JsonObject& config, std::string_view key, double otherwise) {
  const json::value* raw = config.raw().if_contains(key);
  if (raw == nullptr) return otherwise;
  if (raw->is_null()) return 0.0;
  const double value = config.number(key);
  if (!(value > 0.0) || value > 1e6)
    throw config.error(key, fmt::format("{} is out of range (0, 1e6]", value));
  return value;
}

void read_gemma(const JsonObject& config, const Family& family, ModelConfig& out) {
  out.embedding_scale = std::sqrt(static_cast<double>(out.hidden_size));
  out.round_embedding_scale = true;
  out.attention_scale = 1.0 / std::sqrt(positive_or(config, "query_pre_attn_scalar", 256.0));
  if (!std::isfinite(out.attention_scale))
    throw config.error("query_pre_attn_scalar", "a number was expected");
  out.logit_soft_cap = positive_or(config, "final_logit_softcapping", family.default_logit_soft_cap);
  if (family.attention_soft_cap_key) {
    out.attention_soft_cap = positive_or(config, "attn_logit_softcapping", family.default_attention_soft_cap);
  } else if (config.has("attn_logit_softcapping")) {
    throw config.error("attn_logit_softcapping", fmt::format("{} does not cap scores", family.architecture));
  }
}

void read_multipliers(const JsonObject& config, ModelConfig& out) {
  const auto factor = [&](std::string_view key) {
    const double value = positive_or(config, key, 1.0);
    return value > 0.0 ? value : 1.0;
  };
  out.embedding_scale = factor("embedding_multiplier");
  out.residual_scale = factor("residual_multiplier");
  out.attention_scale = factor("attention_multiplier");
  out.logit_scale = 1.0 / factor("logits_scaling");
}

/// The text model's dtype, or else the whole model's.
std::optional<DType> read_dtype(const JsonObject& text, const JsonObject& root) {
  for (const JsonObject* config : {&text, &root}) {
    for (const char* key : {"dtype", "torch_dtype"}) {
      if (!config->has(key)) continue;
      const std::string name = config->string(key);
      const auto dtype = parse_dtype(name);
      if (!dtype || !is_float(*dtype)) throw config->error(key, fmt::format("'{}' is not supported", name));
      return *dtype;
    }
  }
  return std::nullopt;
}

std::vector<TokenId> token_ids(const JsonObject& config, std::string_view key, uint32_t vocab_size) {
  const json::value* value = config.find(key);
  if (value == nullptr) return {};
  const json::array* listed = value->if_array();
  if (listed == nullptr) return {static_cast<TokenId>(config.integer(key, 0, vocab_size - 1))};
  std::vector<TokenId> ids;
  for (const json::value& id : *listed) {
    json::error_code failed;
    const auto whole = id.to_number<int64_t>(failed);
    if (failed || whole < 0 || whole >= vocab_size) {
      throw config.error(key, fmt::format("token ids in [0, {}) were expected", vocab_size));
    }
    ids.push_back(static_cast<TokenId>(whole));
  }
  return ids;
}

void add_special_tokens(const JsonObject& config, ModelConfig& out) {
  const auto bos = token_ids(config, "bos_token_id", out.vocab_size);
  if (!out.bos && !bos.empty()) out.bos = bos.front();
  const auto eos = token_ids(config, "eos_token_id", out.vocab_size);
  out.eos.insert(out.eos.end(), eos.begin(), eos.end());
}

/// What config.json says of the model itself.
ModelConfig read_model(const JsonObject& config, const Family& family) {
  ModelConfig out;
  out.architecture = family.architecture;
  out.model_type = family.model_type;
  read_sizes(config, family, out);
  read_rope_config(config, family, out);
  if (out.rope.scaling == RopeScaling::kYarn) {
    // Some configs add yarn and leave max_position_embeddings at what the model was trained with.
    const double stretched = out.rope.original_max_positions * out.rope.factor;
    out.max_positions = std::max(out.max_positions,
                                 static_cast<uint32_t>(std::min<double>(stretched, double{kMaxPositions})));
  }
  out.tie_embeddings = config.boolean_or("tie_word_embeddings", family.default_tied);
  read_biases(config, family, out);
  out.qk_norm = family.qk_norm;
  out.activation = read_activation(config, family);
  if (family.gemma) read_gemma(config, family, out);
  if (family.multipliers) read_multipliers(config, out);
  read_layers(config, family, out);
  return out;
}

void sort_eos(ModelConfig& config) {
  std::sort(config.eos.begin(), config.eos.end());
  config.eos.erase(std::unique(config.eos.begin(), config.eos.end()), config.eos.end());
}

}  // namespace

ModelConfig parse_model_config(const json::value& parsed, const std::filesystem::path& path,
                               const std::function<DType()>& dtype_of_weights) {
  const JsonObject root(parsed, path);
  const Family& family = family_of(root);
  check_keys(root, family);
  const JsonObject config = family.nested ? root.object("text_config") : root;
  if (family.nested) check_keys(config, family);

  ModelConfig out = read_model(config, family);
  const std::optional<DType> dtype = read_dtype(config, root);
  out.dtype = dtype ? *dtype : dtype_of_weights();
  add_special_tokens(config, out);
  if (family.nested) add_special_tokens(root, out);
  sort_eos(out);
  return out;
}

void add_generation_config(const json::value& parsed, const std::filesystem::path& path,
                           ModelConfig& config) {
  add_special_tokens(JsonObject(parsed, path), config);
  sort_eos(config);
}

void limit_windows(ModelConfig& config, uint32_t window) {
  for (uint32_t& of_layer : config.windows) {
    if (window > 0 && (of_layer == 0 || of_layer > window)) of_layer = window;
  }
}

}  // namespace quire::model
