#pragma once

#include <cstring>
#include <filesystem>
#include <functional>
#include <string>

#include <gtest/gtest.h>

#include "backend/cpu/weights.h"
#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/convert_gguf.h"
#include "formats/gguf_writer.h"
#include "formats/model_config.h"
#include "formats/model_tensors.h"
#include "tests/support/data.h"

namespace quire::test {

inline const formats::GgmlType& type_of(uint32_t id) { return *formats::find_ggml_type(id); }

inline std::filesystem::path as_gguf(const std::filesystem::path& dir, uint32_t type) {
  const auto path = test::temp_dir() / "model.gguf";
  formats::GgufMetadata tokenizer;
  const model::ModelConfig config = formats::load_model_config(dir);
  if (config.bos) tokenizer.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*config.bos));
  const char* keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
  for (size_t i = 0; i < config.eos.size(); ++i) tokenizer.add(keys[i], static_cast<uint32_t>(config.eos[i]));
  formats::directory_to_gguf(dir, config, path, type_of(type), tokenizer);
  return path;
}

inline std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

inline void expect_same_rope(const model::RopeConfig& a, const model::RopeConfig& b) {
  EXPECT_EQ(a.theta, b.theta);
  EXPECT_EQ(a.partial, b.partial);
  EXPECT_EQ(a.scaling, b.scaling);
  EXPECT_EQ(a.factor, b.factor);
  EXPECT_EQ(a.low_freq_factor, b.low_freq_factor);
  EXPECT_EQ(a.high_freq_factor, b.high_freq_factor);
  if (a.scaling != model::RopeScaling::kLinear) {
    EXPECT_EQ(a.original_max_positions, b.original_max_positions);
  }
  ASSERT_EQ(a.short_factors.size(), b.short_factors.size());
  ASSERT_EQ(a.long_factors.size(), b.long_factors.size());
  for (size_t i = 0; i < a.short_factors.size(); ++i) {
    EXPECT_NEAR(a.short_factors[i], b.short_factors[i], 1e-6);
    EXPECT_NEAR(a.long_factors[i], b.long_factors[i], 1e-6);
  }
}

inline void expect_same_config(const model::ModelConfig& a, const model::ModelConfig& b) {
  // A GGUF file has the text model of a nested one, and without windows Mistral's is Llama's.
  const bool nested = a.architecture == "Gemma3ForConditionalGeneration";
  if (!nested && (a.architecture != "MistralForCausalLM" || a.windows.front() != 0)) {
    EXPECT_EQ(a.architecture, b.architecture);
    EXPECT_EQ(a.model_type, b.model_type);
  }
  ASSERT_EQ(a.local_rope.has_value(), b.local_rope.has_value());
  if (a.local_rope) expect_same_rope(*a.local_rope, *b.local_rope);
  expect_same_rope(a.rope, b.rope);
  EXPECT_EQ(a.layer_ropes, b.layer_ropes);
  EXPECT_EQ(a.activation, b.activation);
  EXPECT_EQ(a.embedding_scale, b.embedding_scale);
  EXPECT_EQ(a.round_embedding_scale, b.round_embedding_scale);
  EXPECT_EQ(a.residual_scale, b.residual_scale);
  EXPECT_DOUBLE_EQ(a.attention_scale, b.attention_scale);
  EXPECT_EQ(a.logit_scale, b.logit_scale);
  EXPECT_EQ(a.attention_soft_cap, b.attention_soft_cap);
  EXPECT_EQ(a.logit_soft_cap, b.logit_soft_cap);
  EXPECT_EQ(a.moe.num_experts, b.moe.num_experts);
  EXPECT_EQ(a.moe.top, b.moe.top);
  EXPECT_EQ(a.moe.ffn_size, b.moe.ffn_size);
  EXPECT_EQ(a.moe.normalize, b.moe.normalize);
  EXPECT_EQ(a.moe.layers, b.moe.layers);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.num_heads, b.num_heads);
  EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.ffn_size, b.ffn_size);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.tie_embeddings, b.tie_embeddings);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.o_bias, b.o_bias);
  EXPECT_EQ(a.mlp_bias, b.mlp_bias);
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(a.windows, b.windows);
  EXPECT_EQ(a.bos, b.bos);
  EXPECT_EQ(a.eos, b.eos);
}

/// Norms of Gemma have 1 added in between, which rounds the smallest.
inline void expect_same_values(const formats::LoadedTensor& left, const formats::LoadedTensor& right,
                               const std::string& name) {
  ASSERT_EQ(left.view().shape, right.view().shape) << name;
  const bool same = left.view().dtype == right.view().dtype &&
                    std::memcmp(left.view().data, right.view().data, left.view().num_bytes()) == 0;
  if (same) return;
  ASSERT_NE(name.find("norm"), name.npos) << name << " differs";
  const auto value = [](const TensorView& view, size_t i) {
    return view.dtype == DType::kBF16 ? bf16_to_f32(view.as<uint16_t>()[i]) : view.as<float>()[i];
  };
  for (size_t i = 0; i < left.view().num_elements(); ++i) {
    EXPECT_NEAR(value(left.view(), i), value(right.view(), i), 1.2e-7) << name;
  }
}

inline void expect_same_tensors(const std::filesystem::path& a_path, const std::filesystem::path& b_path) {
  ThreadPool pool(2);
  const auto a = formats::Checkpoint::open(a_path);
  const auto b = formats::Checkpoint::open(b_path);
  const auto a_names = formats::expected_tensors(formats::load_model_config(a_path), *a);
  const auto b_names =
      formats::expected_tensors(formats::load_model_config(b_path), *b);  // a nested model has other names
  ASSERT_EQ(a_names.size(), b_names.size());
  for (size_t i = 0; i < a_names.size(); ++i) {
    expect_same_values(a->load(a_names[i].name, DType::kF32, pool),
                       b->load(b_names[i].name, DType::kF32, pool), a_names[i].name);
  }
}

}  // namespace quire::test
