#include "formats/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>
#include <vector>

#include <fmt/format.h>

#include "base/file_error.h"
#include "formats/gguf_keys.h"
#include "formats/gguf_rope.h"
#include "model/families.h"
#include "model/limits.h"

namespace quire::formats {
namespace {

/// The dtype of the matrices; quantized matrices count as bf16.
std::string_view checkpoint_dtype(const Gguf& file) {
  bool f16 = false;
  for (const auto& [name, tensor] : file.tensors()) {
    if (tensor.shape.size() < 2) continue;
    if (tensor.type->id == kGgmlF16) {
      f16 = true;
    } else if (tensor.type->id != kGgmlF32) {
      return "bfloat16";
    }
  }
  return f16 ? "float16" : "float32";
}

/// The tokens that end an answer. Files name one or two; others are known by their texts, as in llama.cpp.
json::array end_tokens(const Gguf& file, int64_t vocab_size) {
  constexpr std::array<std::string_view, 8> kTexts = {
      "<|eot_id|>",    "<|im_end|>",      "<|end|>",    "<end_of_turn>",
      "<|endoftext|>", "<|end_of_text|>", "<|eom_id|>", "<\uff5cend\u2581of\u2581sentence\uff5c>"};
  constexpr int64_t kControl = 3;
  std::set<int64_t> ids;
  for (const char* key :
       {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"}) {
    if (file.has(key)) ids.insert(file.integer(key, 0, vocab_size - 1));
  }
  if (file.has("tokenizer.ggml.tokens") && file.has("tokenizer.ggml.token_type")) {
    const auto tokens = file.strings("tokenizer.ggml.tokens");
    const auto types = file.integers("tokenizer.ggml.token_type");
    const size_t count = std::min({tokens.size(), types.size(), static_cast<size_t>(vocab_size)});
    for (size_t id = 0; id < count; ++id) {
      if (types[id] != kControl) continue;
      if (std::find(kTexts.begin(), kTexts.end(), tokens[id]) != kTexts.end())
        ids.insert(static_cast<int64_t>(id));
    }
  }
  return json::array(ids.begin(), ids.end());
}

bool has_bias(const Gguf& file, std::string_view tensor) {
  return file.tensors().contains(fmt::format("blk.0.{}.bias", tensor));
}

/// Every period-th layer has full attention, the others a window (0 in the file: all layers have the window).
void add_pattern(const model::Family& family, GgufKeys& keys, int64_t layers, json::object& config) {
  constexpr const char* kPattern = "attention.sliding_window_pattern";
  if (!keys.has(kPattern)) return;
  const int64_t period = keys.size(kPattern, 0);
  if (period == family.window_pattern) return;
  json::array types;
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool full = period > 0 && (layer + 1) % period == 0;
    types.emplace_back(full ? "full_attention" : "sliding_attention");
  }
  config["layer_types"] = std::move(types);
}

void add_windows(const GgufFamily& gguf, GgufKeys& keys, json::object& config) {
  constexpr const char* kWindow = "attention.sliding_window";
  if (!gguf.windows) return;
  const model::Family& family = gguf.family();
  const int64_t window = keys.size_or(kWindow, gguf.default_window, gguf.default_window > 0 ? 1 : 0);
  if (window > 0) config["sliding_window"] = window;
  if (window == 0) config["sliding_window"] = nullptr;
  if (family.windows != model::WindowRule::kAllButEveryNth) return;
  const int64_t layers = keys.size("block_count", 1, model::kMaxLayers);
  add_pattern(family, keys, layers, config);
  if (window == 0) {
    config["layer_types"] = json::array(static_cast<size_t>(layers), json::value("full_attention"));
  }
}

/// Gemma's caps and scale: a cap that is absent is the one that the model was published with.
void add_gemma(const GgufFamily& gguf, GgufKeys& keys, json::object& config) {
  const model::Family& family = gguf.family();
  config.erase("hidden_act");
  config["hidden_activation"] = "gelu_pytorch_tanh";
  const auto cap = [&](const char* key, double otherwise) {
    const double value = keys.number_or(key, otherwise);
    if (value < 0.0 || (value == 0.0 && otherwise > 0.0)) {
      throw keys.error(key, fmt::format("{} is out of range", value));
    }
    config[key] = value > 0.0 ? json::value(value) : json::value(nullptr);
  };
  cap("final_logit_softcapping", family.default_logit_soft_cap);
  if (family.attention_soft_cap_key) cap("attn_logit_softcapping", family.default_attention_soft_cap);
  const bool wide = keys.size("block_count", 1, model::kMaxLayers) == gguf.wide_scale_layers;
  config["query_pre_attn_scalar"] = wide ? keys.size("embedding_length") / keys.size("attention.head_count")
                                         : config["head_dim"].as_int64();
}

/// Granite's multipliers; files omit those without effect.
void add_multipliers(GgufKeys& keys, json::object& config) {
  if (!keys.boolean_or("rope.scaling.finetuned", true)) {
    throw keys.error("rope.scaling.finetuned", "false (a model without RoPE) is not supported");
  }
  const auto head_dim = static_cast<double>(config["head_dim"].as_int64());
  config["attention_multiplier"] = keys.factor_or("attention.scale", 1.0 / std::sqrt(head_dim));
  config["embedding_multiplier"] = keys.factor_or("embedding_scale", 1.0);
  config["residual_multiplier"] = keys.factor_or("residual_scale", 1.0);
  config["logits_scaling"] = keys.factor_or("logit_scale", 1.0);
}

/// llama.cpp normalizes the weights of a token's experts to sum 1 in both families that quire supports.
void add_experts(const Gguf& file, const model::Family& family, GgufKeys& keys, json::object& config) {
  constexpr const char* kWidth = "expert_feed_forward_length";
  constexpr int64_t kSoftmax = 1;
  const int64_t used = keys.size("expert_used_count");
  config["num_local_experts"] = keys.size("expert_count");
  config["num_experts_per_tok"] = used;
  if (keys.size_or("expert_gating_func", kSoftmax, 0) > kSoftmax) {
    throw keys.error("expert_gating_func", "only softmax is supported");
  }
  if (!keys.boolean_or("expert_weights_norm", true)) {
    throw keys.error("expert_weights_norm", "false is not supported");
  }
  const int64_t width = config["intermediate_size"].as_int64();
  if (family.moe == model::MoeRule::kMixtral) {
    if (keys.size_or(kWidth, width) != width) {
      throw keys.error(kWidth,
                       fmt::format("a value other than feed_forward_length {} is not supported", width));
    }
    return;
  }
  config["moe_intermediate_size"] = keys.size_or(kWidth, std::max<int64_t>(1, width / used));
  config["norm_topk_prob"] = true;
  json::array dense;
  const int64_t layers = keys.size("block_count", 1, model::kMaxLayers);
  for (int64_t layer = 0; layer < layers; ++layer) {
    const bool has_dense = file.tensors().contains(fmt::format("blk.{}.ffn_gate.weight", layer));
    if (has_dense) dense.emplace_back(layer);
  }
  config["mlp_only_layers"] = std::move(dense);
}

/// The keys of all families.
json::object common_config(const Gguf& file, const GgufFamily& gguf, GgufKeys& keys) {
  constexpr const char* kKvHeads = "attention.head_count_kv";
  constexpr const char* kEps = "attention.layer_norm_rms_epsilon";
  const model::Family& family = gguf.family();
  const GgufTensor& embedding = file.at("token_embd.weight");
  const int64_t vocab_size = embedding.shape.size() == 2 ? embedding.shape.front() : 0;
  if (vocab_size < 1) throw file_error(file.path(), "tensor 'token_embd.weight' is not a matrix");
  const int64_t hidden = keys.size("embedding_length", 1, model::kMaxWidth);
  const int64_t heads = keys.size("attention.head_count", 1, model::kMaxHeads);
  const int64_t kv_heads = keys.size_or(kKvHeads, heads, 1, model::kMaxHeads);
  if (heads % kv_heads != 0)
    throw keys.error(kKvHeads, fmt::format("{} does not divide {} heads", kv_heads, heads));
  const double eps = keys.number(kEps);
  if (!(eps >= 0.0 && eps <= 1.0)) throw keys.error(kEps, fmt::format("{} is out of range [0, 1]", eps));
  const int64_t head_dim = keys.size_or("attention.key_length", hidden / heads, 0);
  if (keys.size_or("attention.value_length", head_dim) != head_dim) {
    throw keys.error("attention.value_length",
                     fmt::format("a value other than that of the keys, {}, is not supported", head_dim));
  }
  if (head_dim < 1 || head_dim > model::kMaxHeadDim || head_dim % 2 != 0) {
    throw keys.error(keys.has("attention.key_length") ? "attention.key_length" : "attention.head_count",
                     fmt::format("heads of {} elements: an even number up to {} was expected", head_dim,
                                 model::kMaxHeadDim));
  }
  json::object config = {
      {"architectures", json::array{gguf.architecture}},
      {"model_type", family.model_type},
      {"eos_token_id", end_tokens(file, vocab_size)},
      {"head_dim", head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", hidden},
      {"intermediate_size", keys.size("feed_forward_length", 1, model::kMaxFfn)},
      {"max_position_embeddings", keys.size("context_length", 1, model::kMaxPositions)},
      {"num_attention_heads", heads},
      {"num_hidden_layers", keys.size("block_count", 1, model::kMaxLayers)},
      {"num_key_value_heads", kv_heads},
      {"rms_norm_eps", eps},
      {"tie_word_embeddings", !file.tensors().contains("output.weight")},
      {"torch_dtype", checkpoint_dtype(file)},
      {"vocab_size", vocab_size},
  };
  if (family.mlp_bias_key) config["mlp_bias"] = has_bias(file, "ffn_gate");
  if (family.attention_bias == model::AttentionBias::kByKey)
    config["attention_bias"] = has_bias(file, "attn_q");
  if (file.has("tokenizer.ggml.bos_token_id")) {
    config["bos_token_id"] = file.integer("tokenizer.ggml.bos_token_id", 0, vocab_size - 1);
  }
  return config;
}

}  // namespace

GgufHeads gguf_heads(const Gguf& file, const GgufFamily& family) {
  GgufKeys keys(file, family);
  const int64_t query = keys.size("attention.head_count", 1, model::kMaxHeads);
  const int64_t kv = keys.size_or("attention.head_count_kv", query, 1, model::kMaxHeads);
  return {static_cast<uint32_t>(query), static_cast<uint32_t>(kv)};
}

json::object gguf_config_json(const Gguf& file) {
  constexpr std::string_view kSplitKey = "split.count";
  if (file.integer_or(kSplitKey, 1, 0, UINT32_MAX) > 1) {
    throw file.error(kSplitKey, "a model in several files is not supported: merge them first");
  }
  const GgufFamily& gguf = gguf_family(file);
  const model::Family& family = gguf.family();
  GgufKeys keys(file, gguf);
  json::object config = common_config(file, gguf, keys);
  read_gguf_rope(file, gguf, keys, config);
  add_windows(gguf, keys, config);
  if (gguf.no_rope_interval > 0) config["no_rope_layer_interval"] = gguf.no_rope_interval;
  if (family.gemma) add_gemma(gguf, keys, config);
  if (family.multipliers) add_multipliers(keys, config);
  if (family.moe != model::MoeRule::kNone) add_experts(file, family, keys, config);
  keys.check_others();
  return config;
}

json::object gguf_generation_json(const Gguf& file) {
  json::object out;
  for (const auto& [key, name] :
       {std::pair("general.sampling.temp", "temperature"), std::pair("general.sampling.top_p", "top_p"),
        std::pair("general.sampling.min_p", "min_p"),
        std::pair("general.sampling.penalty_repeat", "repetition_penalty")}) {
    if (file.has(key)) out[name] = file.number(key);
  }
  constexpr const char* kTopK = "general.sampling.top_k";
  if (file.has(kTopK)) out["top_k"] = std::max<int64_t>(0, file.integer(kTopK, INT32_MIN, INT32_MAX));
  if (out.empty()) return out;
  // Greedy decoding is a temperature of 0 there, which Hugging Face refuses.
  const json::value* temperature = out.if_contains("temperature");
  const bool greedy = temperature != nullptr && temperature->to_number<double>() == 0.0;
  out["do_sample"] = !greedy;
  if (greedy) out.erase("temperature");
  return out;
}

model::ModelConfig gguf_model_config(const std::filesystem::path& file, const json::value& config) {
  return model::parse_model_config(config, file,
                                   [&]() -> DType { throw file_error(file, "the config has no dtype"); });
}

}  // namespace quire::formats
