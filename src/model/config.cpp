#include "model/config.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "load/gguf.h"
#include "load/safetensors.h"
#include "model/families.h"
#include "model/gguf_config.h"
#include "model/rope_config.h"

namespace quire {
namespace {

// Far above any model known, low enough that no product of two of them overflows 64 bits.
constexpr int64_t kMaxVocab = 1 << 24;
constexpr int64_t kMaxWidth = 1 << 18;
constexpr int64_t kMaxLayers = 1 << 12;
constexpr int64_t kMaxHeads = 1 << 12;
constexpr int64_t kMaxHeadDim = 1 << 10;
constexpr int64_t kMaxFfn = 1 << 21;
constexpr int64_t kMaxPositions = 1 << 26;

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
    throw config.error("architectures", fmt::format("{} is not supported ({})", name, known));
  }
  const std::string type = config.string("model_type");
  if (const Family* family = find_family_of_type(type)) return *family;
  throw config.error("model_type",
                     fmt::format("'{}' is not supported, and there is no 'architectures' ({})", type, known));
}

/// Keys that change what the model computes and that no family here honours.
void refuse_what_is_not_honoured(const JsonObject& config) {
  for (const char* key : {"quantization_config", "compression_config"}) {
    if (config.has(key)) throw config.error(key, "quantized checkpoints are not supported");
  }
  for (const char* key : {"hidden_act", "hidden_activation"}) {
    const std::string act = config.string_or(key, "silu");
    if (act != "silu" && act != "swish") throw config.error(key, fmt::format("'{}' is not supported", act));
  }
  for (const char* key : {"rope_interleaved", "use_mrope", "is_encoder_decoder"}) {
    if (config.boolean_or(key, false)) throw config.error(key, "is not supported");
  }
}

void read_sizes(const JsonObject& config, const Family& family, ModelConfig& out) {
  out.vocab_size = size_of(config, "vocab_size", kMaxVocab);
  out.hidden_size = size_of(config, "hidden_size", kMaxWidth);
  out.num_layers = size_of(config, "num_hidden_layers", kMaxLayers);
  out.num_heads = size_of(config, "num_attention_heads", kMaxHeads);
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
    throw config.error("num_attention_heads",
                       fmt::format("{} heads in hidden_size {} give no head size, and there is no head_dim",
                                   out.num_heads, out.hidden_size));
  }
  if (out.head_dim % 2 != 0) {
    throw config.error("head_dim", fmt::format("{} is odd, but RoPE rotates pairs", out.head_dim));
  }
  out.rms_norm_eps = config.number_or("rms_norm_eps", 1e-6);
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

uint32_t window_size(const JsonObject& config, const Family& family) {
  if (family.windows == WindowRule::kNone) return 0;
  if (family.windows == WindowRule::kFromLayerUpon && !config.boolean_or("use_sliding_window", false)) {
    return 0;
  }
  const json::value* raw = config.raw().if_contains("sliding_window");
  if (raw != nullptr && raw->is_null()) return 0;
  return size_or(config, "sliding_window", family.default_window, kMaxPositions);
}

std::vector<uint32_t> read_windows(const JsonObject& config, const Family& family, uint32_t num_layers) {
  const uint32_t window = window_size(config, family);
  std::vector<uint32_t> windows(num_layers, 0);
  if (const json::value* listed = config.find("layer_types")) {
    const json::array* types = listed->if_array();
    if (types == nullptr || types->size() != num_layers) {
      throw config.error("layer_types", fmt::format("a list of {} names was expected", num_layers));
    }
    for (uint32_t layer = 0; layer < num_layers; ++layer) {
      const json::string* type = (*types)[layer].if_string();
      const bool sliding = type != nullptr && *type == "sliding_attention";
      if (!sliding && (type == nullptr || *type != "full_attention")) {
        throw config.error("layer_types", fmt::format("layer {} is neither 'full_attention' nor "
                                                      "'sliding_attention'",
                                                      layer));
      }
      if (sliding && family.windows == WindowRule::kNone) {
        throw config.error("layer_types", fmt::format("{} has no sliding attention", family.architecture));
      }
      if (sliding) windows[layer] = window;
    }
    return windows;
  }
  uint32_t first = 0;
  if (family.windows == WindowRule::kFromLayerUpon) {
    constexpr int64_t kDefaultMaxWindowLayers = 28;
    first =
        static_cast<uint32_t>(config.integer_or("max_window_layers", kDefaultMaxWindowLayers, 0, INT32_MAX));
  }
  for (uint32_t layer = first; layer < num_layers; ++layer) windows[layer] = window;
  return windows;
}

DType read_dtype(const JsonObject& config, const std::filesystem::path& dir) {
  for (const char* key : {"dtype", "torch_dtype"}) {
    if (!config.has(key)) continue;
    const std::string name = config.string(key);
    const auto dtype = parse_dtype(name);
    if (!dtype || !is_float(*dtype)) throw config.error(key, fmt::format("'{}' is not supported", name));
    return *dtype;
  }
  const Safetensors weights = Safetensors::open(dir);
  for (const auto& [name, tensor] : weights.tensors()) {
    if (is_float(tensor.dtype)) return tensor.dtype;
  }
  return DType::kF32;
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

std::filesystem::path generation_config_path(const std::filesystem::path& dir) {
  return dir / "generation_config.json";
}

}  // namespace

ModelConfig load_model_config(const std::filesystem::path& model) {
  const bool gguf = is_gguf_file(model);
  const auto path = gguf ? model : model / "config.json";
  const json::value root = gguf ? json::value(gguf_config_json(Gguf::open(model))) : read_json_file(path);
  const JsonObject config(root, path);
  const Family& family = family_of(config);
  refuse_what_is_not_honoured(config);

  ModelConfig out;
  out.architecture = family.architecture;
  out.model_type = family.model_type;
  read_sizes(config, family, out);
  out.rope = read_rope_config(config, out.max_positions);
  if (out.rope.scaling == RopeScaling::kYarn) {
    // Some configs add yarn and leave max_position_embeddings at what the model was trained with.
    const double stretched = out.rope.original_max_positions * out.rope.factor;
    out.max_positions = std::max(out.max_positions,
                                 static_cast<uint32_t>(std::min<double>(stretched, double{kMaxPositions})));
  }
  out.tie_embeddings = config.boolean_or("tie_word_embeddings", false);
  read_biases(config, family, out);
  out.qk_norm = family.qk_norm;
  out.windows = read_windows(config, family, out.num_layers);
  out.dtype = read_dtype(config, model);

  add_special_tokens(config, out);
  const auto generation_path = generation_config_path(model);
  if (!gguf && std::filesystem::exists(generation_path)) {
    const json::value generation = read_json_file(generation_path);
    add_special_tokens(JsonObject(generation, generation_path), out);
  }
  std::sort(out.eos.begin(), out.eos.end());
  out.eos.erase(std::unique(out.eos.begin(), out.eos.end()), out.eos.end());
  return out;
}

SamplingDefaults load_sampling_defaults(const std::filesystem::path& model) {
  SamplingDefaults out;
  const bool gguf = is_gguf_file(model);
  const auto path = gguf ? model : generation_config_path(model);
  if (!std::filesystem::exists(path)) return out;
  const json::value root = gguf ? json::value(gguf_generation_json(Gguf::open(model))) : read_json_file(path);
  const JsonObject config(root, path);
  const auto real = [&](std::string_view key, double min, double max) -> std::optional<float> {
    if (!config.has(key)) return std::nullopt;
    const double value = config.number(key);
    if (value < min || value > max) {
      throw config.error(key, fmt::format("{} is out of range [{}, {}]", value, min, max));
    }
    return static_cast<float>(value);
  };
  constexpr double kSmallest = 1e-6;
  out.temperature = real("temperature", 0.0, 100.0);
  out.top_p = real("top_p", kSmallest, 1.0);
  out.min_p = real("min_p", 0.0, 1.0);
  out.repetition_penalty = real("repetition_penalty", kSmallest, 100.0);
  if (config.has("top_k")) {
    // Some files say "all" with -1.
    out.top_k = static_cast<int32_t>(std::max<int64_t>(0, config.integer("top_k", -1, INT32_MAX)));
  }
  // Greedy decoding is what a file without sampling asks for.
  if (!config.boolean_or("do_sample", true)) out.temperature = 0.0F;
  return out;
}

}  // namespace quire
