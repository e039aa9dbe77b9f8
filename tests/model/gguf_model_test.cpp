#include <cmath>
#include <cstring>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "backend/cpu/inspect.h"
#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/convert_gguf.h"
#include "formats/gguf.h"
#include "formats/gguf_names.h"
#include "formats/gguf_writer.h"
#include "formats/json_file.h"
#include "formats/make_model.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "tests/model/gguf_support.h"
#include "tests/model/runner.h"
#include "tests/support/data.h"

namespace quire::model {
namespace {

using test::as_gguf;
using test::error_of;
using test::expect_same_config;
using test::expect_same_tensors;
using test::type_of;
using testing::AllOf;
using testing::HasSubstr;

void expect_same_logits(const std::filesystem::path& a, const std::filesystem::path& b) {
  const std::vector<TokenId> ids = {1, 7, 300, 42, 5, 5, 99};
  std::vector<std::vector<float>> logits;
  for (const auto& path : {a, b}) {
    test::Runner runner(path, kernels::best_isa_level(), 2);
    logits.push_back(runner.all_logits(ids, 4));
    const auto greedy = runner.greedy(ids, 20, 4);
    logits.back().insert(logits.back().end(), greedy.logits.begin(), greedy.logits.end());
  }
  ASSERT_EQ(logits[0].size(), logits[1].size());
  EXPECT_EQ(std::memcmp(logits[0].data(), logits[1].data(), logits[0].size() * sizeof(float)), 0);
}

TEST(GgufModel, TheDemoModelThereAndBack) {
  const auto dir = test::demo_model_dir();
  const auto gguf = as_gguf(dir, formats::kGgmlBF16);
  expect_same_config(formats::load_model_config(dir), formats::load_model_config(gguf));
  EXPECT_EQ(formats::load_model_config(gguf).dtype, DType::kBF16);
  const SamplingDefaults defaults = formats::load_sampling_defaults(gguf);
  EXPECT_EQ(defaults.temperature, 0.7F);
  EXPECT_EQ(defaults.top_p, 0.9F);
  EXPECT_EQ(defaults.top_k, std::nullopt);
  expect_same_logits(dir, gguf);

  const auto back = test::temp_dir() / "back";
  formats::gguf_to_directory(gguf, back, std::nullopt);
  expect_same_config(formats::load_model_config(dir), formats::load_model_config(back));
  expect_same_tensors(dir, back);
  EXPECT_EQ(formats::Safetensors::open(dir).tensors().size(),
            formats::Safetensors::open(back).tensors().size());
  EXPECT_EQ(formats::load_sampling_defaults(back).temperature, 0.7F);
  // Without it transformers would decode greedily.
  EXPECT_EQ(read_json_file(back / "generation_config.json").at("do_sample"), true);
}

TEST(GgufModel, GreedyDecodingThereAndBack) {
  const auto dir = test::temp_dir() / "greedy";
  std::filesystem::copy(test::demo_model_dir(), dir);
  formats::write_json_file(dir / "generation_config.json",
                           {{"do_sample", false}, {"temperature", 0.7}, {"top_p", 0.9}});
  const auto gguf = as_gguf(dir, formats::kGgmlBF16);
  EXPECT_EQ(formats::load_sampling_defaults(gguf).temperature, 0.0F);
  const auto back = test::temp_dir() / "back";
  formats::gguf_to_directory(gguf, back, std::nullopt);
  const json::value generation = read_json_file(back / "generation_config.json");
  EXPECT_EQ(generation.at("do_sample"), false);
  EXPECT_FALSE(generation.as_object().contains("temperature"));
  EXPECT_EQ(formats::load_sampling_defaults(back).temperature, 0.0F);
  formats::write_json_file(dir / "generation_config.json", {{"do_sample", true}});
  formats::gguf_to_directory(as_gguf(dir, formats::kGgmlBF16), back, std::nullopt);
  EXPECT_EQ(read_json_file(back / "generation_config.json").at("do_sample"), true);
}

TEST(GgufModel, WarningsAreSaidOnce) {
  testing::internal::CaptureStderr();
  const auto dir = test::temp_dir() / "strange";
  std::filesystem::copy(test::demo_model_dir(), dir);
  json::object config = read_json_file(dir / "config.json").get_object();
  config["mystery"] = 1;
  formats::write_json_file(dir / "config.json", config);
  as_gguf(dir, formats::kGgmlBF16);
  const std::string told = testing::internal::GetCapturedStderr();
  EXPECT_EQ(told.find("mystery"), told.rfind("mystery")) << told;
}

TEST(GgufModel, WiderTypesKeepEveryValue) {
  const auto dir = test::demo_model_dir();
  const auto gguf = as_gguf(dir, formats::kGgmlF32);
  const auto back = test::temp_dir() / "back";
  formats::gguf_to_directory(gguf, back, DType::kBF16);
  expect_same_tensors(dir, back);
  EXPECT_EQ(formats::load_model_config(gguf).dtype, DType::kF32);
}

TEST(GgufModel, QuantizedIsItsDequantizedForm) {
  const auto gguf = as_gguf(test::demo_model_dir(), formats::kGgmlQ8_0);
  EXPECT_EQ(formats::load_model_config(gguf).dtype, DType::kBF16);
  const formats::Gguf file = formats::Gguf::open(gguf);
  EXPECT_EQ(file.at("blk.0.attn_q.weight").type->name, "Q8_0");
  EXPECT_EQ(file.at("blk.0.attn_norm.weight").type->name, "F32");
  const auto back = test::temp_dir() / "back";
  formats::gguf_to_directory(gguf, back, std::nullopt);
  expect_same_logits(gguf, back);

  // Near the original, too.
  ThreadPool pool(1);
  const auto original = formats::Checkpoint::open(test::demo_model_dir());
  const auto quantized = formats::Checkpoint::open(gguf);
  const formats::LoadedTensor a = original->load("model.layers.2.self_attn.k_proj.weight", DType::kF32, pool);
  const formats::LoadedTensor b =
      quantized->load("model.layers.2.self_attn.k_proj.weight", DType::kF32, pool);
  float largest = 0.0F;
  for (size_t i = 0; i < b.view().num_elements(); ++i) {
    largest = std::max(largest, std::fabs(b.view().as<float>()[i] - bf16_to_f32(a.view().as<uint16_t>()[i])));
  }
  EXPECT_GT(largest, 0.0F);
  EXPECT_LT(largest, 0.01F);
}

TEST(GgufModel, RowsThatAreNoBlocksStayF16) {
  const auto dir = test::temp_dir() / "tiny";
  formats::make_model("tiny", dir, 3);  // heads of 16, width 64, feed-forward 160
  const auto gguf = as_gguf(dir, formats::kGgmlQ8_0);
  const formats::Gguf file = formats::Gguf::open(gguf);
  EXPECT_EQ(file.at("blk.0.ffn_down.weight").type->name, "Q8_0");  // 160 is five blocks
  EXPECT_TRUE(file.has("llama.rope.dimension_count"));
  EXPECT_EQ(backend::cpu::inspect_model(gguf).num_parameters,
            backend::cpu::inspect_model(dir).num_parameters);
  EXPECT_LT(backend::cpu::inspect_model(gguf).weight_bytes, backend::cpu::inspect_model(dir).weight_bytes);
}

class GoldenGguf : public testing::TestWithParam<const char*> {};

TEST_P(GoldenGguf, ComputesTheSame) {
  const auto relative = std::filesystem::path("golden-models") / GetParam();
  QUIRE_NEEDS_DATA(relative);
  const auto dir = test::data_dir() / relative;
  const auto gguf = as_gguf(dir, formats::kGgmlF32);
  expect_same_config(formats::load_model_config(dir), formats::load_model_config(gguf));
  expect_same_tensors(dir, gguf);
  expect_same_logits(dir, gguf);
  const auto back = test::temp_dir() / "back";
  formats::gguf_to_directory(gguf, back, std::nullopt);
  expect_same_config(formats::load_model_config(dir), formats::load_model_config(back));
  expect_same_tensors(dir, back);
}

INSTANTIATE_TEST_SUITE_P(Each, GoldenGguf,
                         testing::Values("gemma2", "llama-linear-rope", "llama3-tied", "mistral-window",
                                         "mixtral", "phi3", "qwen2", "qwen3"));

TEST(GgufModel, OtherPeoplesFileIsItsHuggingFaceForm) {
  QUIRE_NEEDS_DATA("gguf-llama-tiny-random");
  const auto gguf = test::data_dir() / "gguf-llama-tiny-random" / "llama-2-tiny-random.gguf";
  const ModelConfig config = formats::load_model_config(gguf);
  EXPECT_EQ(config.architecture, "LlamaForCausalLM");
  EXPECT_EQ(config.dtype, DType::kF16);
  EXPECT_EQ(config.head_dim, 4U);
  EXPECT_EQ(config.max_positions, 4096U);
  EXPECT_EQ(config.rms_norm_eps, 1e-5);
  EXPECT_EQ(config.eos, std::vector<TokenId>{2});
  const auto dir = test::temp_dir() / "hf";
  formats::gguf_to_directory(gguf, dir, std::nullopt);
  expect_same_config(config, formats::load_model_config(dir));
  expect_same_logits(gguf, dir);
}

TEST(GgufNames, GoBothWays) {
  const formats::GgufTensorNames llama(*formats::find_gguf_family("LlamaForCausalLM"));
  const auto q = llama.hf("blk.12.attn_q.bias");
  ASSERT_TRUE(q);
  EXPECT_EQ(q->text, "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(q->role, formats::GgufRole::kQuery);
  EXPECT_EQ(llama.hf("output.weight")->text, "lm_head.weight");
  for (const char* none :
       {"blk.x.attn_q.weight", "blk..attn_q.weight", "blk.1.attn_q", "blk.1.nothing.weight", "q.weight",
        "blk.1", "", "blk.1.token_embd.weight", "blk.01.attn_q.weight", "blk.1.ffn_up.3.weight",
        "blk.99999999999.attn_q.weight"}) {
    EXPECT_FALSE(llama.hf(none)) << none;
  }
  for (const formats::GgufFamily& family : formats::gguf_families()) {
    const formats::GgufTensorNames names(family);
    for (const formats::GgufTensorNames::Pair& pair : names.of_layer()) {
      const std::string gguf = fmt::format("blk.3.{}.weight", pair.gguf);
      const auto hf = names.hf(gguf);
      ASSERT_TRUE(hf) << gguf;
      const auto again = names.gguf(pair.role == formats::GgufRole::kExperts ? hf->of_expert(7) : hf->text);
      ASSERT_TRUE(again) << gguf;
      EXPECT_EQ(again->text, gguf);
      EXPECT_EQ(again->role, pair.role);
      EXPECT_EQ(again->expert, pair.role == formats::GgufRole::kExperts ? 7U : 0U);
    }
  }
}

TEST(GgufNames, OfExpertsAndNestedModels) {
  const formats::GgufTensorNames mixtral(*formats::find_gguf_family("MixtralForCausalLM"));
  const std::string w3 = "model.layers.2.block_sparse_moe.experts.5.w3.weight";
  EXPECT_EQ(mixtral.hf("blk.2.ffn_up.5.weight")->text, w3);
  EXPECT_EQ(mixtral.hf("blk.2.ffn_up_exps.weight")->of_expert(5), w3);
  for (const char* none : {"blk.2.ffn_up.x.weight", "blk.2.ffn_up.5.5.weight", "blk.2.attn_q.5.weight"}) {
    EXPECT_FALSE(mixtral.hf(none)) << none;
  }
  const formats::GgufTensorNames nested(*formats::find_gguf_family("Gemma3ForConditionalGeneration"));
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    EXPECT_EQ(nested.gguf(fmt::format("{}layers.1.mlp.up_proj.weight", prefix))->text, "blk.1.ffn_up.weight");
    EXPECT_EQ(nested.gguf(fmt::format("{}norm.weight", prefix))->text, "output_norm.weight");
  }
}

/// A tiny Llama file with keys of choice.
class BadGguf : public testing::Test {
 protected:
  void set_sizes(std::string_view changed = {}, uint32_t to = 0) {
    metadata_ = {};
    metadata_.add("general.architecture", "llama");
    for (const auto& [key, value] :
         {std::pair("context_length", 64U), std::pair("embedding_length", 8U), std::pair("block_count", 1U),
          std::pair("feed_forward_length", 16U), std::pair("attention.head_count", 2U),
          std::pair("attention.head_count_kv", 2U)}) {
      // Given only where a test is about it.
      if (std::string_view(key).ends_with("_kv") && key != changed) continue;
      metadata_.add(fmt::format("llama.{}", key), key == changed ? to : value);
    }
    metadata_.add("llama.attention.layer_norm_rms_epsilon", 1e-5F);
  }
  void SetUp() override {
    set_sizes();
    tensors_ = {{"token_embd.weight", {20, 8}},   {"blk.0.attn_norm.weight", {8}},
                {"blk.0.attn_q.weight", {8, 8}},  {"blk.0.attn_k.weight", {8, 8}},
                {"blk.0.attn_v.weight", {8, 8}},  {"blk.0.attn_output.weight", {8, 8}},
                {"blk.0.ffn_norm.weight", {8}},   {"blk.0.ffn_gate.weight", {16, 8}},
                {"blk.0.ffn_up.weight", {16, 8}}, {"blk.0.ffn_down.weight", {8, 16}},
                {"output_norm.weight", {8}}};
  }
  std::filesystem::path write() {
    const auto path = test::temp_dir() / "bad.gguf";
    std::vector<formats::GgufTensorSpec> specs;
    for (const auto& [name, shape] : tensors_) specs.push_back({name, &type_of(formats::kGgmlF32), shape});
    formats::GgufWriter writer(path, metadata_, specs);
    for (const formats::GgufTensorSpec& spec : specs) {
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
    return error_of([&] { backend::cpu::inspect_model(path); });
  }
  std::vector<int64_t>& shape_of(std::string_view name) {
    for (auto& [each, shape] : tensors_) {
      if (each == name) return shape;
    }
    return tensors_.emplace_back(name, std::vector<int64_t>{}).second;
  }

  formats::GgufMetadata metadata_;
  std::vector<std::pair<std::string, std::vector<int64_t>>> tensors_;
  float factor_ = 2.0F;
};

TEST_F(BadGguf, IsGoodToBeginWith) {
  EXPECT_EQ(load_error(), "no error");
  const ModelConfig config = formats::load_model_config(write());
  EXPECT_EQ(config.num_kv_heads, 2U);
  EXPECT_EQ(config.rope.theta, 10000.0);
  EXPECT_TRUE(config.tie_embeddings);
}

TEST_F(BadGguf, KeysThatChangeTheNumbers) {
  metadata_.add("llama.residual_scale", 8.0F);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.residual_scale': 8 is not supported"));
}

TEST_F(BadGguf, KeysOfOtherFamilies) {
  metadata_.add("llama.rope.freq_base_swa", 10000.0F);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.rope.freq_base_swa': is not supported with this"));
}

TEST_F(BadGguf, TensorsThatTheModelHasNot) {
  shape_of("blk.0.attn_sinks.weight") = {2};
  EXPECT_THAT(load_error(),
              HasSubstr("tensor 'blk.0.attn_sinks.weight': LlamaForCausalLM has no such tensor"));
}

TEST_F(BadGguf, BiasesOfALaterLayerOnly) {
  shape_of("blk.0.attn_k.bias") = {8};
  EXPECT_THAT(load_error(), HasSubstr("tensor 'blk.0.attn_k.bias': LlamaForCausalLM has no such tensor"));
}

TEST_F(BadGguf, ExpertsThatAreNone) {
  metadata_.add("llama.expert_count", 2U);
  metadata_.add("llama.expert_used_count", 1U);
  for (const char* name : {"ffn_gate", "ffn_up", "ffn_down"}) {
    shape_of(fmt::format("blk.0.{}_exps.weight", name)) = std::string_view(name) == "ffn_down"
                                                              ? std::vector<int64_t>{2, 8, 16}
                                                              : std::vector<int64_t>{2, 16, 8};
  }
  shape_of("blk.0.ffn_gate_inp.weight") = {2, 8};
  EXPECT_THAT(load_error(),
              HasSubstr("tensor 'blk.0.ffn_down.weight': MixtralForCausalLM has no such tensor"));
  std::erase_if(tensors_, [](const auto& tensor) {
    return tensor.first == "blk.0.ffn_gate.weight" || tensor.first == "blk.0.ffn_up.weight" ||
           tensor.first == "blk.0.ffn_down.weight";
  });
  EXPECT_EQ(load_error(), "no error");
  shape_of("blk.0.ffn_up_exps.weight") = {5000, 16, 0};
  EXPECT_THAT(load_error(),
              HasSubstr("tensor 'blk.0.ffn_up_exps.weight': the matrices of 1 to 4096 experts"));
  shape_of("blk.0.ffn_up_exps.weight") = {1, 16, 8};
  EXPECT_THAT(load_error(), AllOf(HasSubstr("tensor 'blk.0.ffn_up_exps.weight (model.layers.0."),
                                  HasSubstr("experts.1.w3.weight)' is missing")));
}

TEST_F(BadGguf, AttentionFactorsWithoutAScaling) {
  metadata_.add("llama.rope.scaling.attn_factor", 1.5F);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.rope.scaling.attn_factor': is not supported without"));
}

TEST_F(BadGguf, AFactorWithoutATypeIsLinear) {
  metadata_.add("llama.rope.scaling.factor", 4.0F);
  EXPECT_EQ(formats::load_model_config(write()).rope.scaling, RopeScaling::kLinear);
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
  EXPECT_THAT(load_error(), HasSubstr("do not stretch"));
  factor_ = std::nanf("");
  EXPECT_THAT(load_error(), HasSubstr("rope_freqs.weight"));
  shape_of("rope_freqs.weight") = {3};
  EXPECT_THAT(load_error(), HasSubstr("2 factors of type F32 were expected"));
}

TEST_F(BadGguf, ShapesAndNames) {
  shape_of("blk.0.ffn_up.weight") = {15, 8};
  EXPECT_THAT(load_error(),
              AllOf(HasSubstr("bad.gguf: at byte "),
                    HasSubstr("tensor 'blk.0.ffn_up.weight' has shape [15, 8], expected [16, 8]")));
  tensors_.erase(tensors_.begin() + 3);
  EXPECT_THAT(load_error(), HasSubstr("tensor 'blk.0.attn_k.weight' is missing"));
}

TEST_F(BadGguf, RowsThatAreNoHeads) {
  shape_of("blk.0.attn_q.weight") = {6, 8};
  EXPECT_THAT(load_error(),
              HasSubstr("tensor 'blk.0.attn_q.weight': 6 rows are not an even number for each of 2 heads"));
}

TEST_F(BadGguf, TheSameTensorUnderTwoNames) {
  shape_of("lm_head.weight") = {20, 8};
  shape_of("output.weight") = {20, 8};
  EXPECT_THAT(load_error(), HasSubstr("occurs under two names"));
}

TEST_F(BadGguf, SizesThatAreNone) {
  metadata_.add("llama.attention.head_count_kv", 0U);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.attention.head_count_kv': 0 is out of range"));
}

TEST_F(BadGguf, SizesOutOfRangeAreNamedAsInTheFile) {
  for (const char* key : {"context_length", "embedding_length", "block_count", "feed_forward_length",
                          "attention.head_count", "attention.head_count_kv"}) {
    for (const uint32_t bad : {0U, 3U << 30}) {
      set_sizes(key, bad);
      EXPECT_THAT(load_error(), HasSubstr(fmt::format("key 'llama.{}': {} is out of range", key, bad)));
    }
  }
  set_sizes("attention.head_count_kv", 3);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.attention.head_count_kv': 3 does not divide"));
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
  formats::GgufMetadata metadata;
  metadata.add("general.architecture", "mamba");
  formats::GgufWriter(path, metadata, {}).finish();
  EXPECT_THAT(
      error_of([&] { formats::load_model_config(path); }),
      HasSubstr("key 'general.architecture': 'mamba' is not supported (llama, qwen2, qwen3, qwen3moe, "
                "phi3, smollm3, gemma2, gemma3, granite, olmo2)"));
  EXPECT_THAT(error_of([&] { formats::Checkpoint::open(path); }), HasSubstr("'mamba' is not supported"));
}

}  // namespace
}  // namespace quire::model
