#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <functional>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "base/error.h"
#include "load/gguf.h"
#include "load/gguf_writer.h"
#include "load/safetensors.h"
#include "model/checkpoint.h"
#include "model/convert_gguf.h"
#include "model/gguf_config.h"
#include "model/gguf_names.h"
#include "model/inspect.h"
#include "model/json_file.h"
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

void expect_same_rope(const RopeConfig& a, const RopeConfig& b) {
  EXPECT_EQ(a.theta, b.theta);
  EXPECT_EQ(a.partial, b.partial);
  EXPECT_EQ(a.scaling, b.scaling);
  EXPECT_EQ(a.factor, b.factor);
  EXPECT_EQ(a.low_freq_factor, b.low_freq_factor);
  EXPECT_EQ(a.high_freq_factor, b.high_freq_factor);
  if (a.scaling != RopeScaling::kLinear) {
    EXPECT_EQ(a.original_max_positions, b.original_max_positions);
  }
  ASSERT_EQ(a.short_factors.size(), b.short_factors.size());
  ASSERT_EQ(a.long_factors.size(), b.long_factors.size());
  for (size_t i = 0; i < a.short_factors.size(); ++i) {
    EXPECT_NEAR(a.short_factors[i], b.short_factors[i], 1e-6);
    EXPECT_NEAR(a.long_factors[i], b.long_factors[i], 1e-6);
  }
}

void expect_same_config(const ModelConfig& a, const ModelConfig& b) {
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
void expect_same_values(const LoadedTensor& left, const LoadedTensor& right, const std::string& name) {
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

void expect_same_tensors(const std::filesystem::path& a_path, const std::filesystem::path& b_path) {
  ThreadPool pool(2);
  const auto a = Checkpoint::open(a_path);
  const auto b = Checkpoint::open(b_path);
  const auto a_names = expected_tensors(load_model_config(a_path), *a);
  const auto b_names = expected_tensors(load_model_config(b_path), *b);  // a nested model has other names
  ASSERT_EQ(a_names.size(), b_names.size());
  for (size_t i = 0; i < a_names.size(); ++i) {
    expect_same_values(a->load(a_names[i].name, DType::kF32, pool),
                       b->load(b_names[i].name, DType::kF32, pool), a_names[i].name);
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
                         testing::Values("gemma2", "llama-linear-rope", "llama3-tied", "mistral-window",
                                         "mixtral", "phi3", "qwen2", "qwen3"));

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

// ---- each family, against what transformers computes

struct Golden {
  std::vector<std::vector<TokenId>> input_ids;
  std::vector<float> logits;

  explicit Golden(const std::filesystem::path& dir) {
    const Safetensors file = Safetensors::open(dir / "expected.safetensors");
    const TensorView& ids = file.at("input_ids");
    for (int64_t row = 0; row < ids.shape[0]; ++row) {
      const int64_t* from = ids.as<int64_t>() + row * ids.shape[1];
      input_ids.emplace_back(from, from + ids.shape[1]);
    }
    const TensorView& values = file.at("logits");
    logits.assign(values.as<float>(), values.as<float>() + values.num_elements());
  }
};

std::vector<float> logits_of(const std::filesystem::path& model, const Golden& golden, uint32_t longest = 0) {
  test::Runner runner(model, best_isa_level(), 2, DType::kF32, longest);
  std::vector<float> out;
  for (const auto& ids : golden.input_ids) {
    const auto row = runner.all_logits(ids, ids.size());
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

float largest_difference(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0.0F;
  for (size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const float d = std::fabs(a[i] - b[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

constexpr float kTolerance = 2e-4F;
constexpr auto kFixtures = "tests/model/fixtures";
constexpr auto kGgufFixtures = "tests/model/gguf_fixtures";

std::vector<std::string> folders_in(const char* parent) {
  std::vector<std::string> out;
  for (const auto& entry : std::filesystem::directory_iterator(parent)) {
    if (entry.is_directory()) out.push_back(entry.path().filename());
  }
  std::sort(out.begin(), out.end());
  return out;
}

/// What GGUF cannot say of a fixture, and the config of a neighbour of which it can say all.
struct Unsayable {
  std::string_view fixture;
  std::string_view error;
  std::vector<std::pair<std::string_view, json::value>> instead;
};

const std::vector<Unsayable>& unsayable() {
  const json::array full(4, "full_attention");
  static const std::vector<Unsayable> all = {
      {"gemma2-odd", "query_pre_attn_scalar other than 10", {{"query_pre_attn_scalar", 10}}},
      {"gemma2-one-kv", "query_pre_attn_scalar other than 16", {{"query_pre_attn_scalar", 16}}},
      {"gemma2-uncapped",
       "the absence of soft caps",
       {{"query_pre_attn_scalar", 8}, {"attn_logit_softcapping", 9.0}, {"final_logit_softcapping", 3.0}}},
      {"gemma3-nested", "query_pre_attn_scalar other than 8", {{"query_pre_attn_scalar", 8}}},
      {"gemma3-odd", "query_pre_attn_scalar other than 10", {{"query_pre_attn_scalar", 10}}},
      {"gemma3-one-kv", "query_pre_attn_scalar other than 16", {{"query_pre_attn_scalar", 16}}},
      {"qwen2-windows", "the sliding windows", {{"use_sliding_window", false}}},
      {"qwen3-windows", "the sliding windows", {{"use_sliding_window", false}}},
      {"qwen3-moe-one-kv", "norm_topk_prob = false", {{"norm_topk_prob", true}}},
      {"qwen3-moe-sparse-step", "the sliding windows", {{"use_sliding_window", false}}},
      {"smollm3-odd", "no_rope_layers", {{"no_rope_layers", json::array{1, 1}}}},
      {"smollm3-one-kv", "no_rope_layers", {{"no_rope_layers", json::array{1, 1, 1}}}},
      {"smollm3-windows",
       "the sliding windows",
       {{"no_rope_layers", json::array{1, 1, 1, 0}}, {"layer_types", full}, {"use_sliding_window", false}}}};
  return all;
}

std::filesystem::path with_config(const std::filesystem::path& dir, const Unsayable& change) {
  const auto out = test::temp_dir() / "sayable";
  std::filesystem::create_directories(out);
  const json::value parsed = read_json_file(dir / "config.json");
  json::object config = parsed.get_object();
  json::object& text = config.contains("text_config") ? config["text_config"].get_object() : config;
  for (const auto& [key, value] : change.instead) text[key] = value;
  write_json_file(out / "config.json", config);
  std::filesystem::copy_file(dir / "model.safetensors", out / "model.safetensors",
                             std::filesystem::copy_options::overwrite_existing);
  return out;
}

class FixtureGguf : public testing::TestWithParam<std::string> {};

TEST_P(FixtureGguf, ThereAndBack) {
  auto dir = std::filesystem::path(kFixtures) / GetParam();
  const Golden golden(dir);
  const uint32_t longest = GetParam() == "phi3-longrope-short" ? 64 : 0;
  const auto& all = unsayable();
  const auto change =
      std::find_if(all.begin(), all.end(), [&](const Unsayable& u) { return u.fixture == GetParam(); });
  std::vector<float> expected = golden.logits;
  if (change != all.end()) {
    EXPECT_THAT(error_of([&] { as_gguf(dir, kGgmlF32); }),
                HasSubstr(fmt::format("config.json: GGUF has no key for {} of", change->error)));
    dir = with_config(dir, *change);
    expected = logits_of(dir, golden, longest);
  }
  const auto gguf = as_gguf(dir, kGgmlF32);
  expect_same_config(load_model_config(dir), load_model_config(gguf));
  const auto logits = logits_of(gguf, golden, longest);
  const float difference = largest_difference(logits, expected);
  EXPECT_LE(difference, kTolerance);
  EXPECT_LE(largest_difference(logits, logits_of(dir, golden, longest)), 1e-5F);
  RecordProperty("difference", fmt::format("{}", difference));

  const auto back = test::temp_dir() / "back";
  gguf_to_directory(gguf, back, DType::kBF16);
  expect_same_config(load_model_config(dir), load_model_config(back));
  expect_same_tensors(dir, back);
}

std::string label(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

INSTANTIATE_TEST_SUITE_P(Each, FixtureGguf, testing::ValuesIn(folders_in(kFixtures)), label);

TEST(GgufFamilies, AreAllOfThem) {
  for (const Family& family : families()) {
    EXPECT_NE(find_gguf_family(family.architecture), nullptr) << family.architecture;
  }
  EXPECT_EQ(folders_in(kGgufFixtures).size(), 8U) << "run from the root of the repository";
}

// Files that llama.cpp's converter wrote (tools/make_gguf_golden.py).
class LlamaCppGguf : public testing::TestWithParam<std::string> {};

TEST_P(LlamaCppGguf, ComputesWhatTransformersDoes) {
  const auto dir = std::filesystem::path(kGgufFixtures) / GetParam();
  const Golden golden(dir);
  const auto direct = logits_of(dir / "model.gguf", golden);
  const float difference = largest_difference(direct, golden.logits);
  EXPECT_LE(difference, kTolerance);
  RecordProperty("difference", fmt::format("{}", difference));
  const auto converted = test::temp_dir() / "hf";
  gguf_to_directory(dir / "model.gguf", converted, std::nullopt);
  EXPECT_LE(largest_difference(logits_of(converted, golden), direct), 0.0F);
}

TEST_P(LlamaCppGguf, IsWrittenTheSame) {
  const auto original = std::filesystem::path(kGgufFixtures) / GetParam() / "model.gguf";
  const auto dir = test::temp_dir() / "hf";
  gguf_to_directory(original, dir, std::nullopt);
  const Gguf theirs = Gguf::open(original);
  const Gguf ours = Gguf::open(as_gguf(dir, kGgmlBF16));
  EXPECT_EQ(theirs.tensors().size(), ours.tensors().size());
  for (const auto& [name, tensor] : theirs.tensors()) {
    const GgufTensor& own = ours.at(name);
    EXPECT_EQ(tensor.type->name, own.type->name) << name;
    EXPECT_EQ(tensor.shape, own.shape) << name;
    ASSERT_EQ(tensor.bytes, own.bytes) << name;
    EXPECT_EQ(std::memcmp(tensor.data, own.data, tensor.bytes), 0) << name;
  }
  const std::string arch(theirs.string("general.architecture"));
  EXPECT_EQ(ours.string("general.architecture"), arch);
  for (const std::string_view key : theirs.keys()) {
    if (!key.starts_with(arch + ".")) continue;
    ASSERT_TRUE(ours.has(key)) << key;
    if (key.ends_with("rope.scaling.type")) {
      EXPECT_EQ(theirs.string(key), ours.string(key)) << key;
    } else {
      EXPECT_FLOAT_EQ(static_cast<float>(theirs.number(key)), static_cast<float>(ours.number(key))) << key;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Each, LlamaCppGguf, testing::ValuesIn(folders_in(kGgufFixtures)), label);

TEST(GgufExperts, OfOldFilesAreTensorsOfTheirOwn) {
  const auto dir = std::filesystem::path(kGgufFixtures) / "mixtral";
  const Gguf merged = Gguf::open(dir / "model.gguf");
  const ModelConfig config = load_model_config(dir / "model.gguf");
  GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  add_gguf_config(metadata, *find_gguf_family(config.architecture), config, dir);
  std::vector<GgufTensorSpec> specs;
  std::vector<std::span<const std::byte>> data;
  for (const auto& [name, tensor] : merged.tensors()) {
    const size_t experts = name.find("_exps");
    const auto count = experts == name.npos ? 1 : static_cast<size_t>(tensor.shape[0]);
    for (size_t i = 0; i < count; ++i) {
      GgufTensorSpec spec{name, tensor.type, tensor.shape};
      if (experts != name.npos) {
        spec.name.replace(experts, 5, fmt::format(".{}", i));
        spec.shape.erase(spec.shape.begin());
      }
      specs.push_back(std::move(spec));
      data.emplace_back(tensor.data + i * (tensor.bytes / count), tensor.bytes / count);
    }
  }
  const auto split = test::temp_dir() / "split.gguf";
  GgufWriter writer(split, metadata, specs);
  for (const auto bytes : data) writer.append(bytes);
  writer.finish();
  const Golden golden(dir);
  EXPECT_LE(largest_difference(logits_of(split, golden), golden.logits), kTolerance);
}

TEST(GgufExperts, QuantizedAreTheirDequantizedForm) {
  QUIRE_NEEDS_DATA("golden-models/mixtral");
  const auto gguf = as_gguf(test::data_dir() / "golden-models" / "mixtral", kGgmlQ8_0);
  EXPECT_EQ(Gguf::open(gguf).at("blk.0.ffn_down_exps.weight").type->name, "Q8_0");
  EXPECT_EQ(Gguf::open(gguf).at("blk.0.ffn_gate_inp.weight").type->name, "F32");
  const auto back = test::temp_dir() / "back";
  gguf_to_directory(gguf, back, DType::kF32);
  test::Runner quantized(gguf, best_isa_level(), 2, DType::kF32);
  test::Runner plain(back, best_isa_level(), 2, DType::kF32);
  const std::vector<TokenId> ids = {1, 7, 300, 42, 5, 5, 99};
  EXPECT_EQ(quantized.all_logits(ids, 4), plain.all_logits(ids, 4));
}

TEST(GgufNames, GoBothWays) {
  const GgufTensorNames llama(*find_gguf_family("LlamaForCausalLM"));
  const auto q = llama.hf("blk.12.attn_q.bias");
  ASSERT_TRUE(q);
  EXPECT_EQ(q->text, "model.layers.12.self_attn.q_proj.bias");
  EXPECT_EQ(q->role, GgufRole::kQuery);
  EXPECT_EQ(llama.hf("output.weight")->text, "lm_head.weight");
  for (const char* none :
       {"blk.x.attn_q.weight", "blk..attn_q.weight", "blk.1.attn_q", "blk.1.nothing.weight", "q.weight",
        "blk.1", "", "blk.1.token_embd.weight", "blk.01.attn_q.weight", "blk.1.ffn_up.3.weight",
        "blk.99999999999.attn_q.weight"}) {
    EXPECT_FALSE(llama.hf(none)) << none;
  }
  for (const GgufFamily& family : gguf_families()) {
    const GgufTensorNames names(family);
    for (const GgufTensorNames::Pair& pair : names.of_layer()) {
      const std::string gguf = fmt::format("blk.3.{}.weight", pair.gguf);
      const auto hf = names.hf(gguf);
      ASSERT_TRUE(hf) << gguf;
      const auto again = names.gguf(pair.role == GgufRole::kExperts ? hf->of_expert(7) : hf->text);
      ASSERT_TRUE(again) << gguf;
      EXPECT_EQ(again->text, gguf);
      EXPECT_EQ(again->role, pair.role);
      EXPECT_EQ(again->expert, pair.role == GgufRole::kExperts ? 7U : 0U);
    }
  }
}

TEST(GgufNames, OfExpertsAndNestedModels) {
  const GgufTensorNames mixtral(*find_gguf_family("MixtralForCausalLM"));
  const std::string w3 = "model.layers.2.block_sparse_moe.experts.5.w3.weight";
  EXPECT_EQ(mixtral.hf("blk.2.ffn_up.5.weight")->text, w3);
  EXPECT_EQ(mixtral.hf("blk.2.ffn_up_exps.weight")->of_expert(5), w3);
  for (const char* none : {"blk.2.ffn_up.x.weight", "blk.2.ffn_up.5.5.weight", "blk.2.attn_q.5.weight"}) {
    EXPECT_FALSE(mixtral.hf(none)) << none;
  }
  const GgufTensorNames nested(*find_gguf_family("Gemma3ForConditionalGeneration"));
  for (const char* prefix : {"language_model.model.", "model.language_model."}) {
    EXPECT_EQ(nested.gguf(fmt::format("{}layers.1.mlp.up_proj.weight", prefix))->text, "blk.1.ffn_up.weight");
    EXPECT_EQ(nested.gguf(fmt::format("{}norm.weight", prefix))->text, "output_norm.weight");
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
  metadata_.add("llama.residual_scale", 8.0F);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.residual_scale': 8 is not supported"));
}

TEST_F(BadGguf, KeysOfOtherFamilies) {
  metadata_.add("llama.rope.freq_base_swa", 10000.0F);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.rope.freq_base_swa': is not supported with this"));
}

TEST_F(BadGguf, TensorsThatTheModelHasNot) {
  shape_of("blk.0.attn_sinks.weight") = {2};
  EXPECT_THAT(load_error(), HasSubstr("tensor 'blk.0.attn_sinks.weight': LlamaForCausalLM has none"));
}

TEST_F(BadGguf, BiasesOfALaterLayerOnly) {
  shape_of("blk.0.attn_k.bias") = {8};
  EXPECT_THAT(load_error(), HasSubstr("tensor 'blk.0.attn_k.bias': LlamaForCausalLM has none"));
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
  EXPECT_THAT(load_error(), HasSubstr("tensor 'blk.0.ffn_down.weight': MixtralForCausalLM has none"));
  std::erase_if(tensors_, [](const auto& tensor) {
    return tensor.first == "blk.0.ffn_gate.weight" || tensor.first == "blk.0.ffn_up.weight" ||
           tensor.first == "blk.0.ffn_down.weight";
  });
  EXPECT_EQ(load_error(), "no error");
  shape_of("blk.0.ffn_up_exps.weight") = {5000, 16, 0};
  EXPECT_THAT(load_error(),
              HasSubstr("tensor 'blk.0.ffn_up_exps.weight': the matrices of 1 to 4096 experts"));
  shape_of("blk.0.ffn_up_exps.weight") = {1, 16, 8};
  EXPECT_THAT(load_error(), HasSubstr("experts.1.w3.weight' is missing"));
}

TEST_F(BadGguf, AttentionFactorsWithoutAScaling) {
  metadata_.add("llama.rope.scaling.attn_factor", 1.5F);
  EXPECT_THAT(load_error(), HasSubstr("key 'llama.rope.scaling.attn_factor': is not supported without"));
}

TEST_F(BadGguf, AFactorWithoutATypeIsLinear) {
  metadata_.add("llama.rope.scaling.factor", 4.0F);
  EXPECT_EQ(load_model_config(write()).rope.scaling, RopeScaling::kLinear);
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
  EXPECT_THAT(
      error_of([&] { load_model_config(path); }),
      HasSubstr("key 'general.architecture': 'mamba' is not supported (llama, qwen2, qwen3, qwen3moe, "
                "phi3, smollm3, gemma2, gemma3, granite, olmo2)"));
  EXPECT_THAT(error_of([&] { Checkpoint::open(path); }), HasSubstr("'mamba' is not supported"));
}

}  // namespace
}  // namespace quire
