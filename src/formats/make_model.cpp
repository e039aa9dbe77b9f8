#include "formats/make_model.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include <fmt/format.h>

#include "base/error.h"
#include "base/machine_limits.h"
#include "base/rng.h"
#include "base/thread_pool.h"
#include "formats/filler_tokenizer.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "formats/safetensors_writer.h"
#include "model/config.h"

namespace quire::formats {
namespace {

enum class Manner { kLlama3, kQwen2 };  // of special tokens, chat template and config

struct NamedShape {
  std::string_view name;
  Manner manner;
  uint32_t hidden, layers, heads, kv_heads, head_dim, ffn, vocab, first_special, max_positions;
  bool tied;
  double rope_factor;  // llama3 scaling; 0: none
};

constexpr std::array kShapes = {
    NamedShape{"tiny", Manner::kLlama3, 64, 2, 4, 2, 16, 160, 640, 384, 1024, true, 0.0},
    NamedShape{"llama-3.2-1b", Manner::kLlama3, 2048, 16, 32, 8, 64, 8192, 128256, 128000, 131072, true,
               32.0},
    NamedShape{"llama-3.2-3b", Manner::kLlama3, 3072, 28, 24, 8, 128, 8192, 128256, 128000, 131072, true,
               32.0},
    NamedShape{"llama-3.1-8b", Manner::kLlama3, 4096, 32, 32, 8, 128, 14336, 128256, 128000, 131072, false,
               8.0},
    NamedShape{"qwen2.5-0.5b", Manner::kQwen2, 896, 24, 14, 2, 64, 4864, 151936, 151643, 32768, true, 0.0},
};

constexpr std::string_view kLlama3Template =
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] "
    "}}<|end_header_id|>\n\n"
    "{{ message['content'] | trim }}<|eot_id|>{% endfor %}{% if add_generation_prompt %}<|start_header_id|>"
    "assistant<|end_header_id|>\n\n{% endif %}";
constexpr std::string_view kChatMlTemplate =
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

/// The special tokens by their place after first_special, and which of them mean something.
struct Specials {
  std::vector<std::string> texts;
  std::string bos;  // before every text; empty if none
  std::string eos;  // ends a turn
  std::vector<uint32_t> eos_ids;
  uint32_t bos_id = 0;
};

Specials specials_of(const NamedShape& shape) {
  Specials out;
  std::vector<std::string>& texts = out.texts;
  const uint32_t count = shape.vocab - shape.first_special;
  uint32_t reserved = 0;
  const auto reserve_until = [&](uint32_t size) {
    while (texts.size() < size) texts.push_back(fmt::format("<|reserved_special_token_{}|>", reserved++));
  };
  out.bos_id = shape.first_special;
  if (shape.manner == Manner::kLlama3) {
    texts = {"<|begin_of_text|>", "<|end_of_text|>"};
    reserve_until(6);
    texts.insert(texts.end(), {"<|start_header_id|>", "<|end_header_id|>"});
    reserve_until(9);
    texts.emplace_back("<|eot_id|>");
    out.bos = texts.front();
    out.eos = texts.back();
    out.eos_ids = {shape.first_special + 1, shape.first_special + 9};
  } else {
    texts = {"<|endoftext|>", "<|im_start|>", "<|im_end|>"};
    out.eos = texts.back();
    out.eos_ids = {shape.first_special + 2, shape.first_special};
  }
  reserve_until(count);
  return out;
}

json::object config_json(const NamedShape& shape, const Specials& specials) {
  const bool llama = shape.manner == Manner::kLlama3;
  json::object config = {{"architectures", json::array{llama ? "LlamaForCausalLM" : "Qwen2ForCausalLM"}},
                         {"model_type", llama ? "llama" : "qwen2"},
                         {"attention_dropout", 0.0},
                         {"bos_token_id", specials.bos_id},
                         {"eos_token_id", specials.eos_ids.front()},
                         {"hidden_act", "silu"},
                         {"hidden_size", shape.hidden},
                         {"initializer_range", 0.02},
                         {"intermediate_size", shape.ffn},
                         {"max_position_embeddings", shape.max_positions},
                         {"num_attention_heads", shape.heads},
                         {"num_hidden_layers", shape.layers},
                         {"num_key_value_heads", shape.kv_heads},
                         {"rope_scaling", nullptr},
                         {"tie_word_embeddings", shape.tied},
                         {"torch_dtype", "bfloat16"},
                         {"use_cache", true},
                         {"vocab_size", shape.vocab}};
  if (llama) {
    config["attention_bias"] = false;
    config["mlp_bias"] = false;
    config["head_dim"] = shape.head_dim;
    config["rms_norm_eps"] = 1e-5;
    config["rope_theta"] = 500000.0;
  } else {
    config["rms_norm_eps"] = 1e-6;
    config["rope_theta"] = 1000000.0;
    config["sliding_window"] = shape.max_positions;
    config["use_sliding_window"] = false;
    config["max_window_layers"] = shape.layers;
  }
  if (shape.rope_factor > 0.0) {
    config["rope_scaling"] = {{"factor", shape.rope_factor},
                              {"high_freq_factor", 4.0},
                              {"low_freq_factor", 1.0},
                              {"original_max_position_embeddings", 8192},
                              {"rope_type", "llama3"}};
  }
  return config;
}

/// 65,536 samples of a near-normal distribution of standard deviation 0.02 (Irwin-Hall: the sum of four
/// uniform draws), in integers up to the last step so that they are the same everywhere.
std::vector<uint16_t> normal_samples() {
  constexpr double kDeviation = 0.02;
  std::vector<uint16_t> out(size_t{1} << 16);
  for (size_t i = 0; i < out.size(); ++i) {
    const uint64_t bits = mix64(i);
    const uint64_t sum =
        (bits & 0xffffU) + ((bits >> 16) & 0xffffU) + ((bits >> 32) & 0xffffU) + (bits >> 48);
    // Four uniform draws of [0, 65535] have mean 2 * 65535 and variance 65536^2 / 3, nearly.
    const double standard = (static_cast<double>(sum) - 2.0 * 65535.0) / 65536.0 * std::sqrt(3.0);
    out[i] = f32_to_bf16(static_cast<float>(standard * kDeviation));
  }
  return out;
}

class RandomWeights {
 public:
  explicit RandomWeights(uint64_t seed) : seed_(seed) {}

  void write(SafetensorsWriter& writer, const TensorSpec& spec, uint64_t stream) {
    uint64_t count = 1;
    for (const int64_t dim : spec.shape) count *= static_cast<uint64_t>(dim);
    for (uint64_t first = 0; first < count; first += piece_.size()) {
      const std::span<uint16_t> piece(piece_.data(), std::min<uint64_t>(piece_.size(), count - first));
      if (spec.name.ends_with("norm.weight")) {
        std::fill(piece.begin(), piece.end(), f32_to_bf16(1.0F));
      } else {
        fill(piece, first, stream);
      }
      writer.append(std::as_bytes(piece));
    }
  }

 private:
  static constexpr size_t kPieceValues = size_t{4} << 20;

  /// One draw of 64 bits gives four values, keyed by their place, so that the threads do not matter.
  void fill(std::span<uint16_t> piece, uint64_t first, uint64_t stream) {
    const uint64_t base = mix64(mix64(seed_) ^ stream);
    pool_.parallel_for((piece.size() + 3) / 4, 1 << 14, [&](size_t begin, size_t end, uint32_t) {
      for (size_t group = begin; group < end; ++group) {
        uint64_t bits = mix64(base ^ (first / 4 + group));
        for (size_t i = 4 * group; i < std::min(4 * group + 4, piece.size()); ++i, bits >>= 16) {
          piece[i] = samples_[bits & 0xffffU];
        }
      }
    });
  }

  uint64_t seed_;
  std::vector<uint16_t> samples_ = normal_samples();
  std::vector<uint16_t> piece_ = std::vector<uint16_t>(kPieceValues);
  ThreadPool pool_{usable_cpus().threads};
};

void write_weights(const std::filesystem::path& dir, uint64_t seed) {
  std::vector<TensorSpec> specs;
  for (ExpectedTensor& tensor : expected_tensors(load_model_config(dir))) {
    specs.push_back({std::move(tensor.name), DType::kBF16, std::move(tensor.shape)});
  }
  SafetensorsWriter writer(dir / "model.safetensors", specs, {{"format", "pt"}});
  RandomWeights weights(seed);
  for (size_t i = 0; i < specs.size(); ++i) weights.write(writer, specs[i], i);
  writer.finish();
}

/// All of a model, into a folder that is there.
void write_model(const NamedShape& shape, const std::filesystem::path& dir, uint64_t seed) {
  const Specials specials = specials_of(shape);
  write_json_file(dir / "config.json", config_json(shape, specials));
  write_json_file(dir / "tokenizer.json",
                  filler_tokenizer_json({shape.vocab, shape.first_special, specials.texts, specials.bos}));
  json::object tokenizer_config = {
      {"eos_token", specials.eos},
      {"chat_template", shape.manner == Manner::kLlama3 ? kLlama3Template : kChatMlTemplate},
      {"clean_up_tokenization_spaces", false},
      {"model_max_length", shape.max_positions},
      {"tokenizer_class", "PreTrainedTokenizerFast"}};
  if (!specials.bos.empty()) tokenizer_config["bos_token"] = specials.bos;
  write_json_file(dir / "tokenizer_config.json", tokenizer_config);
  write_json_file(dir / "generation_config.json",
                  {{"bos_token_id", specials.bos_id},
                   {"eos_token_id", json::array(specials.eos_ids.begin(), specials.eos_ids.end())},
                   {"do_sample", true},
                   {"temperature", 0.6},
                   {"top_p", 0.9}});
  write_weights(dir, seed);
}

}  // namespace

std::vector<std::string> model_shape_names() {
  std::vector<std::string> out;
  out.reserve(kShapes.size());
  for (const NamedShape& shape : kShapes) out.emplace_back(shape.name);
  return out;
}

void make_model(std::string_view shape_name, const std::filesystem::path& out_dir, uint64_t seed) {
  const auto* const shape =
      std::find_if(kShapes.begin(), kShapes.end(), [&](const NamedShape& s) { return s.name == shape_name; });
  if (shape == kShapes.end()) {
    std::string known;
    for (const NamedShape& s : kShapes) known += fmt::format("{}{}", known.empty() ? "" : ", ", s.name);
    throw Error(fmt::format("unknown shape '{}' ({})", shape_name, known));
  }
  std::error_code none;
  const bool is_new = !std::filesystem::exists(out_dir, none);
  std::vector<std::filesystem::path> ours;
  for (const char* name :
       {"config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json"}) {
    if (!std::filesystem::exists(out_dir / name, none)) ours.push_back(out_dir / name);
  }
  try {
    make_directory(out_dir);
    write_model(*shape, out_dir, seed);
  } catch (...) {
    // Without its weights, nothing of a model stays.
    if (is_new) std::filesystem::remove_all(out_dir, none);
    for (const std::filesystem::path& file : ours) std::filesystem::remove(file, none);
    throw;
  }
}

}  // namespace quire::formats
