#include "model/gguf_config.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "model/families.h"
#include "model/rope_table.h"

namespace quire {
namespace {

// Keys, below "ARCH.", that other programs want and that follow from the rest.
constexpr std::array<std::string_view, 4> kIgnoredKeys = {"vocab_size", "tensor_data_layout",
                                                          "attention.value_length", "rope.scaling.finetuned"};

/// A key that changes what a model computes and that no family here honours, with the value of no effect.
struct NeutralKey {
  std::string_view key;
  double neutral;
};
constexpr std::array kNeutralKeys = {
    NeutralKey{"attention.causal", 1},
    NeutralKey{"attention.clamp_kqv", 0},
    NeutralKey{"attention.max_alibi_bias", 0},
    NeutralKey{"attention.scale", 0},
    NeutralKey{"attn_logit_softcapping", 0},
    NeutralKey{"embedding_scale", 1},
    NeutralKey{"expert_count", 0},
    NeutralKey{"expert_used_count", 0},
    NeutralKey{"final_logit_softcapping", 0},
    NeutralKey{"logit_scale", 1},
    NeutralKey{"nextn_predict_layers", 0},
    NeutralKey{"pooling_type", 0},
    NeutralKey{"residual_scale", 1},
    NeutralKey{"rope.scaling.yarn_log_multiplier", 0},
    NeutralKey{"use_parallel_residual", 0},
};

/// The keys of one file below its architecture's name.
class Keys {
 public:
  Keys(const Gguf& file, const GgufFamily& family) : file_(file), prefix_(fmt::format("{}.", family.arch)) {}

  bool has(std::string_view key) { return file_.has(full(key)); }
  /// Also an array of one value a layer, if all are the same.
  int64_t size(std::string_view key) {
    const std::string name = full(key);
    if (!file_.is_array(name)) return file_.integer(name, 1, UINT32_MAX);
    const std::vector<int64_t> all = file_.integers(name);
    if (all.empty() || std::adjacent_find(all.begin(), all.end(), std::not_equal_to<>()) != all.end()) {
      throw file_.error(name, "layers that differ are not supported");
    }
    return all.front();
  }
  double number(std::string_view key) { return file_.number(full(key)); }
  double number_or(std::string_view key, double otherwise) { return file_.number_or(full(key), otherwise); }
  std::string_view string_or(std::string_view key, std::string_view otherwise) {
    return file_.string_or(full(key), otherwise);
  }
  Error error(std::string_view key, std::string_view what) { return file_.error(full(key), what); }

  /// Refuses what no family honours and warns of what nobody asked for.
  void check_others() {
    for (const NeutralKey& neutral : kNeutralKeys) {
      if (!has(neutral.key)) continue;
      const std::string name = full(neutral.key);
      double value = 0.0;
      try {
        value = file_.number(name);
      } catch (const Error&) {
        value = file_.boolean(name) ? 1.0 : 0.0;
      }
      if (value != neutral.neutral) throw file_.error(name, fmt::format("{} is not supported", value));
    }
    for (const std::string_view key : kIgnoredKeys) full(key);
    std::vector<std::string_view> unknown;
    for (const std::string_view key : file_.keys()) {
      if (key.starts_with(prefix_) && !asked_.contains(key)) unknown.push_back(key);
    }
    if (unknown.empty()) return;
    log_warning(fmt::format("{}: keys that are not known, and ignored: {}", file_.path().string(),
                            fmt::join(unknown, ", ")));
  }

 private:
  std::string full(std::string_view key) { return *asked_.insert(prefix_ + std::string(key)).first; }

  const Gguf& file_;
  std::string prefix_;
  std::set<std::string, std::less<>> asked_;
};

constexpr double kFactorTolerance = 1e-4;  // relative; the files have f32, computed in f32

std::vector<float> factors_of(const RopeConfig& rope, uint32_t rotary) {
  RopeConfig plain = rope;
  plain.scaling = RopeScaling::kNone;
  const std::vector<double> unscaled = rope_frequencies(plain, rotary, 0).inverse;
  const std::vector<double> scaled = rope_frequencies(rope, rotary, 0).inverse;
  std::vector<float> out;
  for (size_t i = 0; i < scaled.size(); ++i) out.push_back(static_cast<float>(unscaled[i] / scaled[i]));
  return out;
}

/// GGUF keeps the factors that follow from Llama 3's parameters and not these: they are found again by trying
/// those that models have.
json::object llama3_scaling(const Gguf& file, const GgufTensor& tensor, double theta, uint32_t rotary) {
  const auto refuse = [&](std::string_view what) {
    return file_error(file.path(), fmt::format("tensor '{}': {}", tensor.name, what));
  };
  if (tensor.type->id != kGgmlF32 || tensor.shape != std::vector<int64_t>{rotary / 2}) {
    throw refuse(fmt::format("{} factors of type F32 were expected", rotary / 2));
  }
  std::vector<float> given(rotary / 2);
  dequantize(*tensor.type, tensor.data, given.size(), given.data());
  if (std::all_of(given.begin(), given.end(), [](float f) { return f == 1.0F; })) return {};
  RopeConfig rope;
  rope.theta = theta;
  rope.scaling = RopeScaling::kLlama3;
  rope.factor = *std::max_element(given.begin(), given.end());
  if (!(rope.factor > 1.0) || !std::isfinite(rope.factor)) throw refuse("the factors are no stretching");
  for (const double high : {4.0, 2.0, 8.0, 16.0}) {
    for (double original = 16; original <= 1 << 20; original *= 2) {
      rope.high_freq_factor = high;
      rope.original_max_positions = original;
      const std::vector<float> expected = factors_of(rope, rotary);
      const bool same = std::equal(given.begin(), given.end(), expected.begin(), [](float a, float b) {
        return std::fabs(a - b) <= kFactorTolerance * std::fabs(b);
      });
      if (!same) continue;
      return {{"rope_type", "llama3"},
              {"factor", rope.factor},
              {"low_freq_factor", rope.low_freq_factor},
              {"high_freq_factor", high},
              {"original_max_position_embeddings", static_cast<int64_t>(original)}};
    }
  }
  throw refuse("factors that are not those of Llama 3's scaling are not supported");
}

json::value rope_scaling(const Gguf& file, Keys& keys, double theta, uint32_t rotary) {
  const bool old_linear = keys.has("rope.scale_linear");
  const std::string_view type = keys.string_or("rope.scaling.type", old_linear ? "linear" : "none");
  const double factor = keys.number_or(old_linear ? "rope.scale_linear" : "rope.scaling.factor", 1.0);
  const double original = keys.number_or("rope.scaling.original_context_length", 0.0);
  const double attention = keys.number_or("rope.scaling.attn_factor", 1.0);
  const GgufTensor* factors = file.find(kRopeFactorsTensor);
  if (type == "none" || (type == "linear" && (factor == 1.0 || factor == 0.0))) {
    if (factors == nullptr) return nullptr;
    json::object scaling = llama3_scaling(file, *factors, theta, rotary);
    if (scaling.empty()) return nullptr;
    return scaling;
  }
  if (factors != nullptr) {
    throw keys.error("rope.scaling.type", fmt::format("'{}' together with tensor '{}' is not supported", type,
                                                      kRopeFactorsTensor));
  }
  if (type == "linear") return json::object{{"rope_type", "linear"}, {"factor", factor}};
  if (type != "yarn") {
    throw keys.error("rope.scaling.type", fmt::format("'{}' is not supported (none, linear, yarn)", type));
  }
  json::object yarn = {{"rope_type", "yarn"}, {"factor", factor}};
  if (original > 0.0) yarn["original_max_position_embeddings"] = original;
  for (const auto& [key, name] : {std::pair("rope.scaling.yarn_beta_fast", "beta_fast"),
                                  std::pair("rope.scaling.yarn_beta_slow", "beta_slow")}) {
    if (keys.has(key)) yarn[name] = keys.number(key);
  }
  for (const char* key : {"rope.scaling.yarn_ext_factor", "rope.scaling.yarn_attn_factor"}) {
    if (keys.number_or(key, 1.0) != 1.0) throw keys.error(key, "only 1 is supported");
  }
  // llama.cpp multiplies its own factor by this one, Hugging Face takes it instead.
  if (attention != 1.0) yarn["attention_factor"] = attention * (0.1 * std::log(factor) + 1.0);
  return yarn;
}

/// Of the matrices; what is quantized counts as bf16.
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

void add_rope(const Gguf& file, Keys& keys, int64_t head_dim, json::object& config) {
  const int64_t rotary = keys.has("rope.dimension_count") ? keys.size("rope.dimension_count") : head_dim;
  if (rotary != head_dim) {
    throw keys.error("rope.dimension_count",
                     fmt::format("{} of {} dimensions are not supported", rotary, head_dim));
  }
  const double theta = keys.number_or("rope.freq_base", 10000.0);
  if (!(theta > 0.0)) throw keys.error("rope.freq_base", fmt::format("{} is out of range", theta));
  config["rope_theta"] = theta;
  config["rope_scaling"] = rope_scaling(file, keys, theta, static_cast<uint32_t>(rotary));
}

}  // namespace

GgufHeads gguf_heads(const Gguf& file, const GgufFamily& family) {
  Keys keys(file, family);
  constexpr int64_t kMaxHeads = 1 << 12;
  GgufHeads out;
  out.query = static_cast<uint32_t>(std::clamp<int64_t>(keys.size("attention.head_count"), 0, kMaxHeads));
  out.kv =
      keys.has("attention.head_count_kv")
          ? static_cast<uint32_t>(std::clamp<int64_t>(keys.size("attention.head_count_kv"), 0, kMaxHeads))
          : out.query;
  return out;
}

json::object gguf_config_json(const Gguf& file) {
  constexpr std::string_view kSplitKey = "split.count";
  if (file.integer_or(kSplitKey, 1, 0, UINT32_MAX) > 1) {
    throw file.error(kSplitKey, "a model in several files is not supported: merge them first");
  }
  const GgufFamily& family = gguf_family(file);
  Keys keys(file, family);
  const GgufTensor& embedding = file.at("token_embd.weight");
  const int64_t vocab_size = embedding.shape.size() == 2 ? embedding.shape.front() : 0;
  if (vocab_size < 1) throw file_error(file.path(), "tensor 'token_embd.weight' is no matrix");
  const int64_t hidden = keys.size("embedding_length");
  const int64_t heads = keys.size("attention.head_count");
  const int64_t kv_heads = keys.has("attention.head_count_kv") ? keys.size("attention.head_count_kv") : heads;
  const int64_t head_dim = keys.has("attention.key_length") ? keys.size("attention.key_length")
                                                            : hidden / std::max<int64_t>(heads, 1);
  if (keys.has("attention.value_length") && keys.size("attention.value_length") != head_dim) {
    throw keys.error("attention.value_length",
                     fmt::format("another than that of keys, {}, is not supported", head_dim));
  }
  constexpr int64_t kMaxHeadDim = 1 << 10;
  if (head_dim < 1 || head_dim > kMaxHeadDim) {
    throw keys.error("attention.head_count",
                     fmt::format("{} heads in a width of {} give no head size", heads, hidden));
  }
  json::object config = {
      {"architectures", json::array{family.architecture}},
      {"model_type", family.model_type},
      {"eos_token_id", end_tokens(file, vocab_size)},
      {"head_dim", head_dim},
      {"hidden_act", "silu"},
      {"hidden_size", hidden},
      {"intermediate_size", keys.size("feed_forward_length")},
      {"max_position_embeddings", keys.size("context_length")},
      {"mlp_bias", has_bias(file, "ffn_gate")},
      {"num_attention_heads", heads},
      {"num_hidden_layers", keys.size("block_count")},
      {"num_key_value_heads", kv_heads},
      {"rms_norm_eps", keys.number("attention.layer_norm_rms_epsilon")},
      {"tie_word_embeddings", !file.tensors().contains("output.weight")},
      {"torch_dtype", checkpoint_dtype(file)},
      {"vocab_size", vocab_size},
  };
  if (find_family(family.architecture)->attention_bias == AttentionBias::kByKey) {
    config["attention_bias"] = has_bias(file, "attn_q");
  }
  add_rope(file, keys, head_dim, config);
  if (file.has("tokenizer.ggml.bos_token_id")) {
    config["bos_token_id"] = file.integer("tokenizer.ggml.bos_token_id", 0, vocab_size - 1);
  }
  if (family.arch == "llama" && keys.has("attention.sliding_window")) {
    // llama.cpp's converter leaves this out; where it is, it is Mistral's.
    const GgufFamily& mistral = *find_gguf_family("MistralForCausalLM");
    config["architectures"] = json::array{mistral.architecture};
    config["model_type"] = mistral.model_type;
    config["sliding_window"] = keys.size("attention.sliding_window");
  }
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
  return out;
}

void add_gguf_config(GgufMetadata& out, const GgufFamily& family, const ModelConfig& config) {
  const auto name = [&](std::string_view key) { return fmt::format("{}.{}", family.arch, key); };
  const auto size = [&](std::string_view key, uint32_t value) { out.add(name(key), value); };
  const auto real = [&](std::string_view key, double value) {
    out.add(name(key), static_cast<float>(value));
  };
  size("vocab_size", config.vocab_size);
  size("context_length", config.max_positions);
  size("embedding_length", config.hidden_size);
  size("block_count", config.num_layers);
  size("feed_forward_length", config.ffn_size);
  size("attention.head_count", config.num_heads);
  size("attention.head_count_kv", config.num_kv_heads);
  size("attention.key_length", config.head_dim);
  size("attention.value_length", config.head_dim);
  real("attention.layer_norm_rms_epsilon", config.rms_norm_eps);
  size("rope.dimension_count", config.head_dim);
  real("rope.freq_base", config.rope.theta);

  const uint32_t window = config.windows.empty() ? 0 : config.windows.front();
  const bool alike = std::all_of(config.windows.begin(), config.windows.end(),
                                 [&](uint32_t each) { return each == window; });
  if (!alike || (window != 0 && config.architecture != "MistralForCausalLM")) {
    throw Error(fmt::format("GGUF has no key for the sliding windows of {}", config.architecture));
  }
  if (window != 0) size("attention.sliding_window", window);

  const RopeConfig& rope = config.rope;
  if (rope.scaling == RopeScaling::kLinear) {
    out.add(name("rope.scaling.type"), "linear");
    real("rope.scaling.factor", rope.factor);
  } else if (rope.scaling == RopeScaling::kYarn) {
    if (rope.mscale || rope.mscale_all_dim || !rope.truncate) {
      throw Error("GGUF has no key for yarn's mscale, mscale_all_dim and truncate");
    }
    out.add(name("rope.scaling.type"), "yarn");
    real("rope.scaling.factor", rope.factor);
    size("rope.scaling.original_context_length", static_cast<uint32_t>(rope.original_max_positions));
    real("rope.scaling.yarn_beta_fast", rope.beta_fast);
    real("rope.scaling.yarn_beta_slow", rope.beta_slow);
    if (rope.attention_factor) {
      real("rope.scaling.attn_factor", *rope.attention_factor / (0.1 * std::log(rope.factor) + 1.0));
    }
  }
}

std::vector<float> gguf_rope_factors(const ModelConfig& config) {
  if (config.rope.scaling != RopeScaling::kLlama3) return {};
  return factors_of(config.rope, config.head_dim);
}

}  // namespace quire
