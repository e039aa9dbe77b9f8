// GGUF files of each family: what transformers computes, and what llama.cpp's converter writes.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>

#include <fmt/format.h>
#include <gmock/gmock.h>

#include "formats/gguf.h"
#include "formats/gguf_config.h"
#include "formats/gguf_names.h"
#include "formats/json_file.h"
#include "formats/model_config.h"
#include "formats/safetensors.h"
#include "tests/model/gguf_support.h"
#include "tests/model/runner.h"

namespace quire::model {
namespace {

using test::as_gguf;
using test::error_of;
using test::expect_same_config;
using test::expect_same_tensors;
using testing::HasSubstr;

struct Golden {
  std::vector<std::vector<TokenId>> input_ids;
  std::vector<float> logits;

  explicit Golden(const std::filesystem::path& dir) {
    const formats::Safetensors file = formats::Safetensors::open(dir / "expected.safetensors");
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
  test::Runner runner(model, kernels::best_isa_level(), 2, DType::kF32, longest);
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

constexpr float kGgufTolerance = 2e-4F;
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
  formats::write_json_file(out / "config.json", config);
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
    EXPECT_THAT(error_of([&] { as_gguf(dir, formats::kGgmlF32); }),
                HasSubstr(fmt::format("config.json: GGUF has no key for {} of", change->error)));
    dir = with_config(dir, *change);
    expected = logits_of(dir, golden, longest);
  }
  const auto gguf = as_gguf(dir, formats::kGgmlF32);
  expect_same_config(formats::load_model_config(dir), formats::load_model_config(gguf));
  const auto logits = logits_of(gguf, golden, longest);
  const float difference = largest_difference(logits, expected);
  EXPECT_LE(difference, kGgufTolerance);
  EXPECT_LE(largest_difference(logits, logits_of(dir, golden, longest)), 1e-5F);
  RecordProperty("difference", fmt::format("{}", difference));

  const auto back = test::temp_dir() / "back";
  formats::gguf_to_directory(gguf, back, DType::kBF16);
  expect_same_config(formats::load_model_config(dir), formats::load_model_config(back));
  expect_same_tensors(dir, back);
}

std::string label_of_gguf(const testing::TestParamInfo<std::string>& info) {
  std::string out = info.param;
  std::replace(out.begin(), out.end(), '-', '_');
  return out;
}

INSTANTIATE_TEST_SUITE_P(Each, FixtureGguf, testing::ValuesIn(folders_in(kFixtures)), label_of_gguf);

TEST(GgufFamilies, AreAllOfThem) {
  for (const Family& family : families()) {
    EXPECT_NE(formats::find_gguf_family(family.architecture), nullptr) << family.architecture;
  }
  EXPECT_EQ(folders_in(kGgufFixtures).size(), 11U) << "run from the root of the repository";
}

// Files that llama.cpp's converter wrote (tools/make_gguf_golden.py).
class LlamaCppGguf : public testing::TestWithParam<std::string> {};

TEST_P(LlamaCppGguf, ComputesWhatTransformersDoes) {
  const auto dir = std::filesystem::path(kGgufFixtures) / GetParam();
  const Golden golden(dir);
  const auto direct = logits_of(dir / "model.gguf", golden);
  const float difference = largest_difference(direct, golden.logits);
  EXPECT_LE(difference, kGgufTolerance);
  RecordProperty("difference", fmt::format("{}", difference));
  const auto converted = test::temp_dir() / "hf";
  formats::gguf_to_directory(dir / "model.gguf", converted, std::nullopt);
  EXPECT_LE(largest_difference(logits_of(converted, golden), direct), 0.0F);
}

TEST_P(LlamaCppGguf, IsWrittenTheSame) {
  const auto original = std::filesystem::path(kGgufFixtures) / GetParam() / "model.gguf";
  const auto dir = test::temp_dir() / "hf";
  formats::gguf_to_directory(original, dir, std::nullopt);
  const formats::Gguf theirs = formats::Gguf::open(original);
  const formats::Gguf ours = formats::Gguf::open(as_gguf(dir, formats::kGgmlBF16));
  EXPECT_EQ(theirs.tensors().size(), ours.tensors().size());
  for (const auto& [name, tensor] : theirs.tensors()) {
    const formats::GgufTensor& own = ours.at(name);
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

INSTANTIATE_TEST_SUITE_P(Each, LlamaCppGguf, testing::ValuesIn(folders_in(kGgufFixtures)), label_of_gguf);

/// The config of a file that has these keys and an embedding table of 8 tokens.
class GgufKeysOf : public testing::Test {
 protected:
  void begin(const char* arch, uint32_t layers = 4) {
    arch_ = arch;
    metadata_ = formats::GgufMetadata();
    metadata_.add("general.architecture", arch);
    for (const auto& [key, value] :
         {std::pair("context_length", 64U), std::pair("embedding_length", 48U),
          std::pair("block_count", layers), std::pair("feed_forward_length", 60U),
          std::pair("attention.head_count", 3U), std::pair("attention.key_length", 12U),
          std::pair("attention.value_length", 12U)}) {
      add(key, value);
    }
    add("attention.layer_norm_rms_epsilon", 1e-6F);
  }
  template <class T>
  void add(std::string_view key, T value) {
    metadata_.add(fmt::format("{}.{}", arch_, key), value);
  }
  ModelConfig config() {
    const auto path = test::temp_dir() / "keys.gguf";
    formats::GgufWriter writer(path, metadata_,
                               {{"token_embd.weight", formats::find_ggml_type(formats::kGgmlF32), {8, 48}}});
    const std::vector<float> zeros(8 * 48);
    writer.append(std::as_bytes(std::span(zeros)));
    writer.finish();
    return formats::load_model_config(path);
  }
  std::string error() {
    return error_of([&] { config(); });
  }

  std::string arch_;
  formats::GgufMetadata metadata_;
};

TEST_F(GgufKeysOf, Gemma2) {
  begin("gemma2");
  const ModelConfig plain = config();
  EXPECT_EQ(plain.windows, (std::vector<uint32_t>{4096, 0, 4096, 0}));
  EXPECT_EQ(plain.attention_soft_cap, 50.0);
  EXPECT_EQ(plain.logit_soft_cap, 30.0);
  EXPECT_DOUBLE_EQ(plain.attention_scale, 1.0 / std::sqrt(12.0));
  begin("gemma2", 46);  // the largest
  EXPECT_DOUBLE_EQ(config().attention_scale, 1.0 / std::sqrt(16.0));
  add("attn_logit_softcapping", 0.0F);
  EXPECT_THAT(error(), HasSubstr("key 'gemma2.attn_logit_softcapping': 0 is out of range"));
}

TEST_F(GgufKeysOf, Gemma3) {
  begin("gemma3", 62);
  EXPECT_DOUBLE_EQ(config().attention_scale, 1.0 / std::sqrt(16.0));
  begin("gemma3", 7);
  const ModelConfig full = config();  // no window: all layers see all, with the main RoPE
  EXPECT_EQ(full.windows, std::vector<uint32_t>(7, 0));
  EXPECT_EQ(full.layer_ropes, std::vector<LayerRope>(7, LayerRope::kMain));
  EXPECT_EQ(full.logit_soft_cap, 0.0);
  add("attention.sliding_window", 5U);
  EXPECT_EQ(config().windows, (std::vector<uint32_t>{5, 5, 5, 5, 5, 0, 5}));
  EXPECT_EQ(config().local_rope->theta, 10000.0);
  add("attention.sliding_window_pattern", 3U);
  EXPECT_EQ(config().windows, (std::vector<uint32_t>{5, 5, 0, 5, 5, 0, 5}));
  add("attn_logit_softcapping", 50.0F);
  EXPECT_THAT(error(), HasSubstr("key 'gemma3.attn_logit_softcapping': 50 is not supported"));
}

TEST_F(GgufKeysOf, Gemma3YarnIsRefused) {
  begin("gemma3");
  add("rope.scaling.type", "yarn");
  add("rope.scaling.factor", 4.0F);
  EXPECT_THAT(error(), HasSubstr("key 'gemma3.rope.scaling.type': 'yarn' is not supported"));
}

TEST_F(GgufKeysOf, Granite) {
  begin("granite");
  const ModelConfig plain = config();
  EXPECT_DOUBLE_EQ(plain.attention_scale, 1.0 / std::sqrt(12.0));
  EXPECT_EQ(plain.embedding_scale, 1.0);
  EXPECT_EQ(plain.residual_scale, 1.0);
  add("embedding_scale", 0.0F);  // llama.cpp's "none"
  add("logit_scale", 8.0F);
  EXPECT_EQ(config().embedding_scale, 1.0);
  EXPECT_EQ(config().logit_scale, 0.125);
  add("rope.scaling.finetuned", false);
  EXPECT_THAT(error(), HasSubstr("key 'granite.rope.scaling.finetuned': false (a model without RoPE)"));
}

TEST_F(GgufKeysOf, Phi3) {
  begin("phi3");
  add("attention.sliding_window", 0U);
  add("rope.dimension_count", 6U);
  EXPECT_EQ(config().windows, std::vector<uint32_t>(4, 0));
  EXPECT_EQ(config().rotary(config().rope), 6U);
  for (uint32_t rotary = 2; rotary <= 12; rotary += 2) {
    begin("phi3");
    add("rope.dimension_count", rotary);
    EXPECT_EQ(config().rotary(config().rope), rotary);
  }
  begin("phi3");
  add("rope.dimension_count", 14U);
  EXPECT_THAT(error(), HasSubstr("key 'phi3.rope.dimension_count': 14 of 12 dimensions"));
  begin("phi3");
  add("rope.scaling.attn_factor", 1.2F);
  EXPECT_THAT(error(), HasSubstr("key 'phi3.rope.scaling.attn_factor': is not supported without"));
}

TEST_F(GgufKeysOf, SmolLm3) {
  begin("smollm3", 5);
  const ModelConfig plain = config();
  for (uint32_t layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(plain.layer_rope(layer), layer == 3 ? LayerRope::kNone : LayerRope::kMain);
  }
}

TEST_F(GgufKeysOf, Olmo2HasNoWindows) {
  begin("olmo2");
  EXPECT_EQ(config().qk_norm, QkNorm::kWhole);
  add("attention.sliding_window", 4096U);  // Olmo 3
  EXPECT_THAT(error(), HasSubstr("key 'olmo2.attention.sliding_window': 4096 is not supported"));
}

TEST_F(GgufKeysOf, Experts) {
  begin("qwen3moe");
  EXPECT_THAT(error(), HasSubstr("key 'qwen3moe.expert_used_count'"));
  add("expert_used_count", 2U);
  add("expert_count", 8U);
  EXPECT_EQ(config().moe.ffn_size, 30U);
  EXPECT_TRUE(config().moe.normalize);
  add("expert_feed_forward_length", 7U);
  EXPECT_EQ(config().moe.ffn_size, 7U);
  add("expert_shared_count", 1U);
  EXPECT_THAT(error(), HasSubstr("key 'qwen3moe.expert_shared_count': 1 is not supported"));
  begin("llama");
  add("expert_used_count", 2U);
  add("expert_count", 8U);
  EXPECT_EQ(config().architecture, "MixtralForCausalLM");
  EXPECT_EQ(config().moe.top, 2U);
  add("expert_gating_func", 2U);
  EXPECT_THAT(error(), HasSubstr("key 'llama.expert_gating_func': only softmax is supported"));
}

TEST(GgufExperts, OfOldFilesAreTensorsOfTheirOwn) {
  const auto dir = std::filesystem::path(kGgufFixtures) / "mixtral";
  const formats::Gguf merged = formats::Gguf::open(dir / "model.gguf");
  const ModelConfig config = formats::load_model_config(dir / "model.gguf");
  formats::GgufMetadata metadata;
  metadata.add("general.architecture", "llama");
  formats::add_gguf_config(metadata, *formats::find_gguf_family(config.architecture), config, dir);
  std::vector<formats::GgufTensorSpec> specs;
  std::vector<std::span<const std::byte>> data;
  for (const auto& [name, tensor] : merged.tensors()) {
    const size_t experts = name.find("_exps");
    const auto count = experts == name.npos ? 1 : static_cast<size_t>(tensor.shape[0]);
    for (size_t i = 0; i < count; ++i) {
      formats::GgufTensorSpec spec{name, tensor.type, tensor.shape};
      if (experts != name.npos) {
        spec.name.replace(experts, 5, fmt::format(".{}", i));
        spec.shape.erase(spec.shape.begin());
      }
      specs.push_back(std::move(spec));
      data.emplace_back(tensor.data + i * (tensor.bytes / count), tensor.bytes / count);
    }
  }
  const auto split = test::temp_dir() / "split.gguf";
  formats::GgufWriter writer(split, metadata, specs);
  for (const auto bytes : data) writer.append(bytes);
  writer.finish();
  const Golden golden(dir);
  EXPECT_LE(largest_difference(logits_of(split, golden), golden.logits), kGgufTolerance);
}

TEST(GgufExperts, QuantizedAreTheirDequantizedForm) {
  QUIRE_NEEDS_DATA("golden-models/mixtral");
  const auto gguf = as_gguf(test::data_dir() / "golden-models" / "mixtral", formats::kGgmlQ8_0);
  EXPECT_EQ(formats::Gguf::open(gguf).at("blk.0.ffn_down_exps.weight").type->name, "Q8_0");
  EXPECT_EQ(formats::Gguf::open(gguf).at("blk.0.ffn_gate_inp.weight").type->name, "F32");
  const auto back = test::temp_dir() / "back";
  formats::gguf_to_directory(gguf, back, DType::kF32);
  test::Runner quantized(gguf, kernels::best_isa_level(), 2, DType::kF32);
  test::Runner plain(back, kernels::best_isa_level(), 2, DType::kF32);
  const std::vector<TokenId> ids = {1, 7, 300, 42, 5, 5, 99};
  EXPECT_EQ(quantized.all_logits(ids, 4), plain.all_logits(ids, 4));
}

}  // namespace
}  // namespace quire::model
