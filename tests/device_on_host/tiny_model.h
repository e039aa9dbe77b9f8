#pragma once

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/rng.h"

// Models so small that fibers compute many steps of them, with weights so large that each token counts.
namespace quire::test::fibers {

inline constexpr uint32_t kTinyVocabulary = 64;

using RowChange = std::function<void(std::string_view tensor, std::span<float> row)>;

/// The tensors of a checkpoint in f32, by name and shape: vectors are ones, matrices random. All numbers are
/// whole 256ths, and the first of each row of a matrix is the largest, 127: so rows are exact in bf16 and as
/// int8.
class TinyTensors {
 public:
  void add(std::string name, std::vector<size_t> shape) {
    all_.emplace_back(std::move(name), std::move(shape));
  }
  /// Of matrices, `change` gets each row.
  void write(const std::filesystem::path& path, const RowChange& change) const {
    std::string header = "{";
    std::vector<float> values;
    SplitMix64 rng(5);
    for (const auto& [name, shape] : all_) {
      const size_t first = values.size();
      const size_t count = shape.size() == 1 ? shape[0] : shape[0] * shape[1];
      for (size_t i = 0; i < count; ++i) {
        const bool is_first = shape.size() == 2 && i % shape[1] == 0;
        const auto drawn = static_cast<int>(rng.below(255)) - 127;
        values.push_back(shape.size() == 1 ? 1.0F : static_cast<float>(is_first ? 127 : drawn) / 256.0F);
      }
      for (size_t row = first; change && shape.size() == 2 && row < values.size(); row += shape[1]) {
        change(name, std::span(values).subspan(row, shape[1]));
      }
      header += fmt::format(R"({}"{}": {{"dtype": "F32", "shape": [{}], "data_offsets": [{}, {}]}})",
                            first == 0 ? "" : ", ", name, fmt::join(shape, ", "), first * sizeof(float),
                            values.size() * sizeof(float));
    }
    header += "}";
    std::ofstream file(path, std::ios::binary);
    const uint64_t length = header.size();
    file.write(reinterpret_cast<const char*>(&length), sizeof(length));
    file << header;
    file.write(reinterpret_cast<const char*>(values.data()),
               static_cast<std::streamsize>(values.size() * sizeof(float)));
  }

 private:
  std::vector<std::pair<std::string, std::vector<size_t>>> all_;
};

/// All of a layer but its feed-forward, of width 32 with two heads of 16.
inline void add_tiny_attention(TinyTensors& tensors, const std::string& layer) {
  tensors.add(layer + "input_layernorm.weight", {32});
  tensors.add(layer + "post_attention_layernorm.weight", {32});
  tensors.add(layer + "self_attn.k_proj.weight", {16, 32});
  tensors.add(layer + "self_attn.o_proj.weight", {32, 32});
  tensors.add(layer + "self_attn.q_proj.weight", {32, 32});
  tensors.add(layer + "self_attn.v_proj.weight", {16, 32});
}

inline void write_tiny(const std::filesystem::path& dir, std::string_view config, TinyTensors& tensors,
                       const RowChange& change) {
  tensors.add("lm_head.weight", {kTinyVocabulary, 32});
  tensors.add("model.embed_tokens.weight", {kTinyVocabulary, 32});
  tensors.add("model.norm.weight", {32});
  std::ofstream(dir / "config.json") << config;
  tensors.write(dir / "model.safetensors", change);
}

/// A Llama of one layer.
inline void write_tiny_model(const std::filesystem::path& dir, const RowChange& change = {}) {
  constexpr std::string_view kConfig =
      R"({"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 32,
          "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 1,
          "head_dim": 16, "vocab_size": 64, "max_position_embeddings": 128, "rms_norm_eps": 1e-05,
          "rope_theta": 10000.0, "tie_word_embeddings": false, "torch_dtype": "float32"})";
  TinyTensors tensors;
  const std::string layer = "model.layers.0.";
  add_tiny_attention(tensors, layer);
  tensors.add(layer + "mlp.down_proj.weight", {32, 32});
  tensors.add(layer + "mlp.gate_proj.weight", {32, 32});
  tensors.add(layer + "mlp.up_proj.weight", {32, 32});
  write_tiny(dir, kConfig, tensors, change);
}

/// A Qwen 3 of two layers, of which one has 8 experts, two for each token, whose weights have the sum 1 if
/// `normalize`.
inline void write_tiny_model_of_experts(const std::filesystem::path& dir, bool normalize = true,
                                        const RowChange& change = {}) {
  std::string config =
      R"({"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_size": 32,
          "intermediate_size": 48, "moe_intermediate_size": 40, "num_experts": 8, "num_experts_per_tok": 2,
          "norm_topk_prob": NORMALIZE, "decoder_sparse_step": 1, "mlp_only_layers": [0], "num_hidden_layers": 2,
          "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16, "vocab_size": 64,
          "max_position_embeddings": 128, "rms_norm_eps": 1e-06, "rope_theta": 10000.0,
          "tie_word_embeddings": false, "torch_dtype": "float32"})";
  constexpr std::string_view kPlace = "NORMALIZE";
  config.replace(config.find(kPlace), kPlace.size(), normalize ? "true" : "false");
  TinyTensors tensors;
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    add_tiny_attention(tensors, layer);
    tensors.add(layer + "self_attn.q_norm.weight", {16});
    tensors.add(layer + "self_attn.k_norm.weight", {16});
  }
  const auto add_network = [&](const std::string& prefix, size_t width) {
    tensors.add(prefix + "down_proj.weight", {32, width});
    tensors.add(prefix + "gate_proj.weight", {width, 32});
    tensors.add(prefix + "up_proj.weight", {width, 32});
  };
  add_network("model.layers.0.mlp.", 48);
  tensors.add("model.layers.1.mlp.gate.weight", {8, 32});
  for (int expert = 0; expert < 8; ++expert) {
    add_network(fmt::format("model.layers.1.mlp.experts.{}.", expert), 40);
  }
  write_tiny(dir, config, tensors, change);
}

}  // namespace quire::test::fibers
