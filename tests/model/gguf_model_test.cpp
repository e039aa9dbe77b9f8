#include <cmath>
#include <cstring>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "load/gguf.h"
#include "load/gguf_writer.h"
#include "load/safetensors.h"
#include "model/checkpoint.h"
#include "model/convert_gguf.h"
#include "model/gguf_names.h"
#include "model/inspect.h"
#include "model/make_model.h"
#include "model/weights.h"
#include "tests/model/runner.h"
#include "tests/support/data.h"

namespace quire {
namespace {

using testing::HasSubstr;

const GgmlType& type_of(uint32_t id) { return *find_ggml_type(id); }

std::filesystem::path as_gguf(const std::filesystem::path& dir, uint32_t type) {
  const auto path = test::temp_dir() / "model.gguf";
  GgufMetadata tokenizer;
  const ModelConfig config = load_model_config(dir);
  if (config.bos) tokenizer.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(*config.bos));
  const char* keys[] = {"tokenizer.ggml.eos_token_id", "tokenizer.ggml.eot_token_id"};
  for (size_t i = 0; i < config.eos.size(); ++i) tokenizer.add(keys[i], static_cast<uint32_t>(config.eos[i]));
  directory_to_gguf(dir, path, type_of(type), tokenizer);
  return path;
}

std::string error_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(std::string_view(error.what()).find('\n'), std::string_view::npos) << error.what();
    return error.what();
  }
  return "no error";
}

void expect_same_config(const ModelConfig& a, const ModelConfig& b) {
  EXPECT_EQ(a.architecture, b.architecture);
  EXPECT_EQ(a.model_type, b.model_type);
  EXPECT_EQ(a.vocab_size, b.vocab_size);
  EXPECT_EQ(a.hidden_size, b.hidden_size);
  EXPECT_EQ(a.num_layers, b.num_layers);
  EXPECT_EQ(a.num_heads, b.num_heads);
  EXPECT_EQ(a.num_kv_heads, b.num_kv_heads);
  EXPECT_EQ(a.head_dim, b.head_dim);
  EXPECT_EQ(a.ffn_size, b.ffn_size);
  EXPECT_EQ(a.max_positions, b.max_positions);
  EXPECT_EQ(a.rms_norm_eps, b.rms_norm_eps);
  EXPECT_EQ(a.rope.theta, b.rope.theta);
  EXPECT_EQ(a.rope.scaling, b.rope.scaling);
  EXPECT_EQ(a.rope.factor, b.rope.factor);
  if (a.rope.scaling != RopeScaling::kLinear) {
    EXPECT_EQ(a.rope.original_max_positions, b.rope.original_max_positions);
  }
  EXPECT_EQ(a.rope.low_freq_factor, b.rope.low_freq_factor);
  EXPECT_EQ(a.rope.high_freq_factor, b.rope.high_freq_factor);
  EXPECT_EQ(a.tie_embeddings, b.tie_embeddings);
  EXPECT_EQ(a.qkv_bias, b.qkv_bias);
  EXPECT_EQ(a.o_bias, b.o_bias);
  EXPECT_EQ(a.mlp_bias, b.mlp_bias);
  EXPECT_EQ(a.qk_norm, b.qk_norm);
  EXPECT_EQ(a.windows, b.windows);
  EXPECT_EQ(a.bos, b.bos);
  EXPECT_EQ(a.eos, b.eos);
}

void expect_same_tensors(const std::filesystem::path& a_path, const std::filesystem::path& b_path) {
  ThreadPool pool(2);
  const auto a = Checkpoint::open(a_path);
  const auto b = Checkpoint::open(b_path);
  for (const ExpectedTensor& tensor : expected_tensors(load_model_config(a_path))) {
    const LoadedTensor left = a->load(tensor.name, DType::kF32, pool);
    const LoadedTensor right = b->load(tensor.name, DType::kF32, pool);
    EXPECT_EQ(left.view().dtype, right.view().dtype) << tensor.name;
    EXPECT_EQ(left.view().shape, right.view().shape) << tensor.name;
    ASSERT_EQ(left.view().num_bytes(), right.view().num_bytes()) << tensor.name;
    EXPECT_EQ(std::memcmp(left.view().data, right.view().data, left.view().num_bytes()), 0) << tensor.name;
  }
}

void expect_same_logits(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::vector<TokenId> ids = {1, 7, 300, 42, 5, 5, 99};
  std::vector<std::vector<float>> logits;
  for (const auto& path : {a, b}) {
    test::Runner runner(path, best_isa_level(), 2);
    logits.push_back(runner.all_logits(ids, 4));
    const auto greedy = runner.greedy(ids, 20, 4);
    logits.back().insert(logits.back().end(), greedy.logits.begin(), greedy.logits.end());
  }
  ASSERT_EQ(logits[0].size(), logits[1].size());
  EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)), 0);
}

TEST(GgufModel, TheDemoModelThereAndBack) {
  const auto dir = test::demo_model_dir();
  const auto gguf = as_gguf(dir, kGgmlBF16);
  expect_same_config(load_model_config(dir), load_model_config(gguf));
  EXPECT_EQ(load_model_config(gguf).dtype, DType::kBF16);
  const SamplingDefaults defaults = load_sampling_defaults(gguf);
  EXPECT_EQ(defaults.temperature, 0.7F);
  EXPECT_EQ(defaults.top_p, 0.9F);
  EXPECT_EQ(defaults.top_k, std::nullopt);
  expect_same_logits(dir, gguf);

  const auto back = test::temp_dir() / "back";
  gguf_to_directory(gguf, back, std::nullopt);
  expect_same_config(load_model_config(dir), load_model_config(back));
  expect_same_tensors(dir, back);
  EXPECT_EQ(Safetensors::open(dir).tensors().size(), Safetensors::open(back).tensors().size());
  EXPECT_EQ(load_sampling_defaults(back).temperature, 0.7F);
}

TEST(GgufModel, WiderTypesKeepEveryValue) {
  const auto dir = test::demo_model_dir();
  const auto gguf = as_gguf(dir, kGgmlF32);
  const auto back = test::temp_dir() / "back";
  gguf_to_directory(gguf, back, DType::kBF16);
  expect_same_tensors(dir, back);
  EXPECT_EQ(load_model_config(gguf).dtype, DType::kF32);
}

TEST(GgufModel, QuantizedIsItsDequantizedForm) {
  const auto gguf = as_gguf(test::demo_model_dir(), kGgmlQ8_0);
  EXPECT_EQ(load_model_config(gguf).dtype, DType::kBF16);
  const Gguf file = Gguf::open(gguf);
  EXPECT_EQ(file.at("blk.0.attn_q.weight").type->name, "Q8_0");
  EXPECT_EQ(file.at("blk.0.attn_norm.weight").type->name, "F32");
  const auto back = test::temp_dir() / "back";
  gguf_to_directory(gguf, back, std::nullopt);
  expect_same_logits(gguf, back);

  // Near the original, too.
  ThreadPool pool(1);
  const auto original = Checkpoint::open(test::demo_model_dir());
  const auto quantized = Checkpoint::open(gguf);
  const LoadedTensor a = original->load("model.layers.2.self_attn.k_proj.weight", DType::kF32, pool);
  const LoadedTensor b = quantized->load("model.layers.2.self_attn.k_proj.weight", DType::kF32, pool);
  float largest = 0.0F;
  for (size_t i = 0; i < b.view().num_elements(); ++i) {
    largest = std::max(largest, std::fabs(b.view().as<float>()[i] - bf16_to_f32(a.view().as<uint16_t>()[i])));
  }
  EXPECT_GT(largest, 0.0F);
  EXPECT_LT(largest, 0.01F);
}

TEST(GgufModel, RowsThatAreNoBlocksStayF16) {
  const auto dir = test::temp_dir() / "tiny";
  make_model("tiny", dir, 3);  // heads of 16, width 64, feed-forward 160
  const auto gguf = as_gguf(dir, kGgmlQ8_0);
  const Gguf file = Gguf::open(gguf);
  EXPECT_EQ(file.at("blk.0.ffn_down.weight").type->name, "Q8_0");  // 160 is five blocks
  EXPECT_TRUE(file.has("llama.rope.dimension_count"));
  EXPECT_EQ(inspect_model(gguf).num_parameters, inspect_model(dir).num_parameters);
  EXPECT_LT(inspect_model(gguf).weight_bytes, inspect_model(dir).weight_bytes);
}

class GoldenGguf : public testing::TestWithParam<const char*> {};

TEST_P(GoldenGguf, ComputesTheSame) {
  const auto relative = std::filesystem::path("golden-models") / GetParam();
  QUIRE_NEEDS_DATA(relative);
  const auto dir = test::data_dir() / relative;
  const auto gguf = as_gguf(dir, kGgmlF32);
  expect_same_config(load_model_config(dir), load_model_config(gguf));
  expect_same_tensors(dir, gguf);
  expect_same_logits(dir, gguf);
  const auto back = test::temp_dir() / "back";
  gguf_to_directory(gguf, back, std::nullopt);
  expect_same_config(load_model_config(dir), load_model_config(back));
  expect_same_tensors(dir, back);
}

INSTANTIATE_TEST_SUITE_P(Each, GoldenGguf,
                         testing::Values("llama-linear-rope", "llama3-tied", "mistral-window", "qwen2",
                                         "qwen3"));

TEST(GgufModel, OtherPeoplesFileIsItsHuggingFaceForm) {
  QUIRE_NEEDS_DATA("gguf-llama-tiny-random");
  const auto gguf = test::data_dir() / "gguf-llama-tiny-random" / "llama-2-tiny-random.gguf";
  const ModelConfig config = load_model_config(gguf);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.dtype, DType::kF16);
  EXPECT_EQ(config.head_dim, 4U);
  EXPECT_EQ(config.max_positions, 4096U);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.eos, std::vector<TokenId>{2});
  const auto dir = test::temp_dir() / "hf";
  gguf_to_directory(gguf, dir, std::nullopt);
  expect_same_config(config, load_model_config(dir));
  expect_same_logits(gguf, dir);
}

TEST(GgufNames, GoBothWays) {
  const GgufFamily& llama = *find_gguf_family("LlamaForCausalLM");
  const auto q = hf_tensor_name(llama, "blk.12.attn_q.bias");
  ASSERT_TRUE(q);
  EXPECT_EQ(q->text, "model.layers.12.self_attn.q_proj.bias");
  EXPECT_TRUE(q->is_q);
  EXPECT_FALSE(q->is_k);
  EXPECT_EQ(hf_tensor_name(llama, "output.weight")->text, "lm_head.weight");
  for (const char* none : {"blk.x.attn_q.weight", "blk..attn_q.weight", "blk.1.attn_q",
                           "blk.1.nothing.weight", "q.weight", "blk.1", "", "blk.1.token_embd.weight"}) {
    EXPECT_FALSE(hf_tensor_name(llama, none)) << none;
  }
  for (const GgufFamily& family : gguf_families()) {
    for (const GgufName& name : family.layer_tensors) {
      const std::string gguf = fmt::format("blk.3.{}.weight", name.gguf);
      EXPECT_EQ(gguf_tensor_name(family, hf_tensor_name(family, gguf)->text), gguf);
    }
  }
}

/// A tiny Llama file with keys of choice.
class BadGguf : public testing::Test {
 protected:
  void SetUp() override {
    metadata_.add("general.architecture", "llama");
    for (const auto& [key, value] :
         {std::pair("context_length", 64U), std::pair("embedding_length", 8U), std::pair("block_count", 1U),
          std::pair("feed_forward_length", 16U), std::pair("attention.head_count", 2U)}) {
      metadata_.add(fmt::format("llama.{}", key), value);
    }
    metadata_.add("llama.attention.layer_norm_rms_epsilon", 1e-5F);
    tensors_ = {{"token_embd.weight", {20, 8}},   {"blk.0.attn_norm.weight", {8}},
                {"blk.0.attn_q.weight", {8, 8}},  {"blk.0.attn_k.weight", {8, 8}},
                {"blk.0.attn_v.weight", {8, 8}},  {"blk.0.attn_output.weight", {8, 8}},
                {"blk.0.ffn_norm.weight", {8}},   {"blk.0.ffn_gate.weight", {16, 8}},
                {"blk.0.ffn_up.weight", {16, 8}}, {"blk.0.ffn_down.weight", {8, 16}},
                {"output_norm.weight", {8}}};
  }
  std::filesystem::path write() {
    const auto path = test::temp_dir() / "bad.gguf";
    std::vector<GgufTensorSpec> specs;
    for (const auto& [name, shape] : tensors_) specs.push_back({name, &type_of(kGgmlF32), shape});
    GgufWriter writer(path, metadata_, specs);
    for (const GgufTensorSpec& spec : specs) {
      size_t count = 1;
      for (const int64_t dim : spec.shape) count *= static_cast<size_t>(dim);
      const std::vector<float> values(count, spec.name == "rope_freqs.weight" ? factor_ : 0.5F);
      writer.append(std::as_bytes(std::span(values)));
    }
    writer.finish();
    return path;
  }
  std::string load_error() {
    const auto path = write();
    return error_of([&] { inspect_model(path); });
  }
  std::vector<int64_t>& shape_of(std::string_view name) {
    for (auto& [each, shape] : tensors_) {
      if (each == name) return shape;
    }
    return tensors_.emplace_back(name, std::vector<int64_t>{}).second;
  }

  GgufMetadata metadata_;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors_;
  float factor_ = 2.0F;
};

TEST_F(BadGguf, IsGoodToBeginWith) {
  EXPECT_EQ(load_error(), "no error");
  const ModelConfig config = load_model_config(write());
  EXPECT_EQ(config.num_kv_heads, 2U);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_TRUE(config.tie_embeddings);
}

TEST_F(BadGguf, KeysThatChangeTheNumbers) {
  metadata_.add("llama.expert_count", 8U);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.expert_count': 8 is not supported"));
}

TEST_F(BadGguf, KeysOfNoEffectAreTaken) {
  metadata_.add("llama.expert_count", 0U);
  metadata_.add("llama.attention.causal", true);
  metadata_.add("llama.logit_scale", 1.0F);
  metadata_.add("llama.nobody_knows", 3U);
  EXPECT_EQ(load_error(), "no error");
}

TEST_F(BadGguf, Causality) {
  metadata_.add("llama.attention.causal", false);
  EXPECT_THAT(load_error(), HasSubstr("'llama.attention.causal': 0 is not supported"));
}

TEST_F(BadGguf, RopeOfAPart) {
  metadata_.add("llama.rope.dimension_count", 2U);
  EXPECT_THAT(load_error(),
              HasSubstr("key 'llama.rope.dimension_count': 2 of 4 dimensions are not supported"));
}

TEST_F(BadGguf, UnknownScaling) {
  metadata_.add("llama.rope.scaling.type", "longrope");
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.rope.scaling.type': 'longrope' is not supported"));
}

TEST_F(BadGguf, FactorsThatAreNotLlama3s) {
  shape_of("rope_freqs.weight") = {2};
  EXPECT_THAT(load_error(), HasSubstr("tensor 'rope_freqs.weight': factors that are not those of Llama 3"));
  factor_ = 1.0F;
  EXPECT_EQ(load_error(), "no error");
  factor_ = 0.0F;
  EXPECT_THAT(load_error(), HasSubstr("no stretching"));
  factor_ = std::nanf("");
  EXPECT_THAT(load_error(), HasSubstr("rope_freqs.weight"));
  shape_of("rope_freqs.weight") = {3};
  EXPECT_THAT(load_error(), HasSubstr("2 factors of type F32 were expected"));
}

TEST_F(BadGguf, ShapesAndNames) {
  shape_of("blk.0.ffn_up.weight") = {15, 8};
  EXPECT_THAT(load_error(),
              HasSubstr("tensor 'model.layers.0.mlp.up_proj.weight' has shape [15, 8], expected [16, 8]"));
  tensors_.erase(tensors_.begin() + 3);
  EXPECT_THAT(load_error(), HasSubstr("self_attn.k_proj.weight' is missing"));
}

TEST_F(BadGguf, RowsThatAreNoHeads) {
  shape_of("blk.0.attn_q.weight") = {6, 8};
  EXPECT_THAT(load_error(),
              HasSubstr("tensor 'blk.0.attn_q.weight': 6 rows are no even number for each of 2 heads"));
}

TEST_F(BadGguf, TheSameTensorUnderTwoNames) {
  shape_of("lm_head.weight") = {20, 8};
  shape_of("output.weight") = {20, 8};
  EXPECT_THAT(load_error(), HasSubstr("is there under two names"));
}

TEST_F(BadGguf, SizesThatAreNone) {
  metadata_.add("llama.attention.head_count_kv", 0U);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.attention.head_count_kv': 0 is out of range"));
}

TEST_F(BadGguf, LayersThatDiffer) {
  metadata_.add("llama.attention.head_count_kv", std::vector<int32_t>{1, 2});
  EXPECT_THAT(load_error(),
              HasSubstr("key 'llama.attention.head_count_kv': layers that differ are not supported"));
}

TEST_F(BadGguf, SizesForEachLayer) {
  metadata_.add("llama.attention.head_count_kv", std::vector<int32_t>{2});
  EXPECT_EQ(load_error(), "no error");
}

TEST_F(BadGguf, PartsOfAModel) {
  metadata_.add("split.count", 3U);
  EXPECT_THAT(load_error(), HasSubstr("key 'split.count': a model in several files is not supported"));
}

TEST(BadGgufFamily, IsNamed) {
  const auto path = test::temp_dir() / "other.gguf";
  GgufMetadata metadata;
  metadata.add("general.architecture", "mamba");
  GgufWriter(path, metadata, {}).finish();
  EXPECT_THAT(error_of([&] { load_model_config(path); }),
              HasSubstr("key 'general.architecture': 'mamba' is not supported (llama, qwen2, qwen3)"));
  EXPECT_THAT(error_of([&] { Checkpoint::open(path); }), HasSubstr("'mamba' is not supported"));
}

}  // namespace
}  // namespace quire
