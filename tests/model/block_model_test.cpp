// Models whose matrices stay in the blocks of their GGUF file.
#include "tests/support/block_model.h"

#include <cmath>
#include <cstring>
#include <fstream>

#include <gmock/gmock.h>

#include "base/error.h"
#include "formats/checkpoint.h"
#include "formats/convert_gguf.h"
#include "tests/model/runner.h"
#include "tests/support/data.h"

namespace quire::model {
namespace {

using testing::HasSubstr;

std::vector<TokenId> some_tokens() {
  std::vector<TokenId> tokens(100);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * i * 7 % 300);
  return tokens;
}

std::filesystem::path block_model(const test::TypeOf& type_of, uint32_t experts = 0) {
  const auto path = test::temp_dir() / "blocks.gguf";
  test::write_block_model(path, type_of, experts);
  return path;
}

struct Answer {
  std::string formats;
  std::vector<float> logits;
};

Answer answer_of(const std::filesystem::path& model, const backend::cpu::DecoderOptions& options) {
  test::Runner runner(model, kernels::best_isa_level(), 2, options);
  return {runner.decoder().weight_formats(), runner.all_logits(some_tokens(), 7)};
}

/// Root mean square of the difference, of that of `b`.
double relative_error(const std::vector<float>& a, const std::vector<float>& b) {
  double difference = 0.0;
  double size = 0.0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    size += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / size);
}

/// The weights are the file's, so that only what rounding activations to int8 does is left: some 0.8 % of a
/// row for each matrix. Rounding the weights to int8 too is further off.
constexpr double kTolerance = 0.04;

/// What the blocks give is near what their numbers in f32 do.
void expect_near_expanded(const std::filesystem::path& model, const std::string& formats) {
  const Answer own = answer_of(model, {.compute = DType::kF32});
  const Answer expanded = answer_of(model, {.compute = DType::kF32, .own_blocks = false});
  EXPECT_EQ(own.formats, formats);
  EXPECT_EQ(expanded.formats, "f32");
  ASSERT_EQ(own.logits.size(), expanded.logits.size());
  const double error = relative_error(own.logits, expanded.logits);
  EXPECT_LT(error, kTolerance);
  const Answer int8 = answer_of(model, {.compute = DType::kF32, .quantization = WeightFormat::kInt8});
  EXPECT_EQ(int8.formats, "int8");
  EXPECT_LT(error, relative_error(int8.logits, expanded.logits));
  EXPECT_GT(error, 1e-5);
}

TEST(BlockModel, OfEachTypeIsNearItsExpandedForm) {
  for (const char* type : {"Q8_0", "Q4_0", "Q4_K", "Q6_K"}) {
    SCOPED_TRACE(type);
    expect_near_expanded(block_model([&](std::string_view) { return type; }), type);
  }
}

/// As llama.cpp's mixes are: parts of one stack in different types, some of which are expanded.
std::string_view mixed(std::string_view tensor) {
  if (tensor.find("attn_v") != tensor.npos || tensor.find("ffn_down") != tensor.npos) return "Q6_K";
  if (tensor.find("ffn_gate") != tensor.npos) return "Q5_K";
  if (tensor.find("attn_k") != tensor.npos) return "Q8_0";
  return tensor == "output.weight" ? "Q6_K" : "Q4_K";
}

TEST(BlockModel, OfMixedTypesKeepsEachPart) {
  expect_near_expanded(block_model(mixed), "f32+Q8_0+Q4_K+Q6_K");
}

TEST(BlockModel, OfExpertsKeepsTheirs) {
  expect_near_expanded(block_model([](std::string_view) { return "Q4_K"; }, 4), "Q4_K");
}

TEST(BlockModel, OthersAreExpanded) {
  const auto model = block_model([](std::string_view) { return "Q5_0"; });
  EXPECT_EQ(answer_of(model, {}).formats, "bf16");
  EXPECT_EQ(answer_of(model, {.quantization = WeightFormat::kInt8}).formats, "int8");
}

TEST(BlockModel, QuantizationTakesPlaceOfTheBlocks) {
  const auto model = block_model([](std::string_view) { return "Q4_0"; });
  EXPECT_EQ(answer_of(model, {}).formats, "Q4_0");
  EXPECT_EQ(answer_of(model, {.quantization = WeightFormat::kInt4}).formats, "int4");
  EXPECT_EQ(answer_of(model, {.own_blocks = false}).formats, "bf16");
}

TEST(BlockModel, PackedWeightsAreKept) {
  for (const test::TypeOf& types :
       {test::TypeOf(mixed), test::TypeOf([](std::string_view) { return "Q4_0"; })}) {
    const auto model = block_model(types);
    const auto kept = test::temp_dir() / "kept";
    std::filesystem::create_directories(kept);
    const std::vector<float> expected = answer_of(model, {}).logits;
    for (const char* said : {"the packed weights are in", "the packed weights are those of"}) {
      testing::internal::CaptureStderr();
      EXPECT_EQ(answer_of(model, {.pack_cache = kept}).logits, expected);
      EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr(said));
    }
    // The expanded ones have a file of their own.
    testing::internal::CaptureStderr();
    EXPECT_NE(answer_of(model, {.own_blocks = false, .pack_cache = kept}).logits, expected);
    EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("the packed weights are in"));
    std::filesystem::remove_all(kept);
  }
}

TEST(BlockModel, AScaleThatIsNotFiniteIsWarnedOf) {
  const auto model = block_model([](std::string_view) { return "Q8_0"; });
  {
    const auto file = formats::Checkpoint::open(model);
    std::fstream out(model, std::ios::binary | std::ios::in | std::ios::out);
    out.seekp(static_cast<std::streamoff>(file->place("model.layers.1.mlp.down_proj.weight").offset));
    out.write("\x00\x7c", 2);
  }
  testing::internal::CaptureStderr();
  answer_of(model, {});
  EXPECT_THAT(testing::internal::GetCapturedStderr(), HasSubstr("blk.1.ffn_down.weight"));
}

TEST(BlockModel, LoadsRowsInTheModelsOrder) {
  ThreadPool pool(2);
  const auto model = block_model([](std::string_view) { return "Q4_K"; });
  const auto file = formats::Checkpoint::open(model);
  for (const char* name :
       {"model.layers.1.self_attn.q_proj.weight", "model.layers.0.self_attn.v_proj.weight"}) {
    const formats::LoadedTensor blocks = file->load_blocks(name, pool);
    const formats::LoadedTensor numbers = file->load(name, DType::kF32, pool);
    ASSERT_EQ(blocks.view().dtype, DType::kU8);
    ASSERT_EQ(blocks.view().shape, (std::vector<int64_t>{numbers.view().shape[0], 144}));
    std::vector<float> values(numbers.view().num_elements());
    formats::dequantize(test::ggml_type("Q4_K"), blocks.view().data, values.size(), values.data());
    EXPECT_EQ(std::memcmp(values.data(), numbers.view().data, values.size() * sizeof(float)), 0) << name;
  }
}

}  // namespace
}  // namespace quire::model
