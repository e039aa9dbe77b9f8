// A token and its logprobs, rows of the prompt and pooled states do not depend on the batch, the chunking,
// prefix hits, preemption, forks or the number of threads: equal to the bit, on every level of the kernels.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/backend/owning_executor.h"
#include "tests/support/block_model.h"
#include "tests/support/data.h"
#include "tests/support/sanitized.h"

namespace quire::backend {
namespace {

/// K/V of quantized weights is bf16.
cpu::DecoderOptions options_of(WeightFormat format) {
  if (format >= WeightFormat::kInt8) return {.compute = DType::kBF16, .quantization = format};
  return {.compute = format == WeightFormat::kF32 ? DType::kF32 : DType::kBF16};
}

void expect_bit_identity(const std::filesystem::path& dir, const cpu::DecoderOptions& options,
                         kernels::IsaLevel isa, std::vector<uint32_t> threads, uint32_t max_tokens,
                         uint32_t requests = 32, std::optional<DType> kv = std::nullopt) {
  test::Rig one(dir, options, isa, 1, kv);
  if (test::kSanitized) {
    requests = 8;
    threads = {2};
  }
  const auto specs = test::mixed_requests(one.decoder->config().vocab_size, requests, max_tokens);
  const auto alone = test::run_alone(one.make_executor(), specs);
  const auto alone_second = test::run_alone(one.make_executor(), test::second_choices(specs));
  for (size_t i = 0; i < specs.size(); ++i) {
    ASSERT_EQ(alone[i].error, "");
    ASSERT_EQ(alone[i].tokens.size(), specs[i].max_tokens);
    if (specs[i].max_tokens > 0) {
      const std::vector<TokenLogprob>& top = alone[i].tokens[0].top;
      const std::vector<TokenId>& named = specs[i].sampling.logprob_tokens;
      const bool is_named = std::ranges::find(named, top[0].token) != named.end();
      ASSERT_EQ(top.size(), specs[i].sampling.most_logprobs() - (is_named ? 1 : 0));
    }
    const PromptWants& wants = specs[i].wants;
    const auto rows = static_cast<uint32_t>(specs[i].prompt.size()) - 1;
    ASSERT_EQ(alone[i].prompt.rows.size(), wants.logprobs < 0 ? 0 : rows - std::min(rows, wants.first_row));
    ASSERT_EQ(alone[i].prompt.pooled.size(),
              wants.pooling == Pooling::kNone ? 0 : one.decoder->config().hidden_size);
  }
  for (const uint32_t count : threads) {
    SCOPED_TRACE("threads: " + std::to_string(count));
    test::Rig rig(dir, options, isa, count, kv);
    test::expect_same_in_every_way(rig.make_executor(), specs, alone);
    test::expect_same_as_forks(rig.make_executor(), specs, alone, alone_second);
  }
}

std::string identifier(std::string name) {
  for (char& c : name) c = c == '-' ? '_' : c;
  return name;
}

class DemoModel : public testing::TestWithParam<std::tuple<kernels::IsaLevel, WeightFormat>> {};

TEST_P(DemoModel, IsBitIdenticalInEveryWay) {
  const auto [isa, format] = GetParam();
  ASSERT_TRUE(std::filesystem::exists(test::demo_model_dir())) << "run from the root of the repository";
  // The plain loops of the reference are slow.
  if (isa == kernels::IsaLevel::kReference) {
    expect_bit_identity(test::demo_model_dir(), options_of(format), isa, {2}, 8, 12);
  } else {
    expect_bit_identity(test::demo_model_dir(), options_of(format), isa, {1, 2, 4}, 10);
  }
}

/// Whether a level has kernels of its own for a format; else it is that of a level before it. The plain loops
/// of the reference are for floating point, and without sanitizers.
bool has_its_own(kernels::IsaLevel isa, WeightFormat format) {
  const bool integers = format >= WeightFormat::kInt8;
  switch (isa) {
    case kernels::IsaLevel::kReference:
      return !integers && !test::kSanitized;
    case kernels::IsaLevel::kAvx2:
      return true;
    case kernels::IsaLevel::kAvx2Vnni:
      return integers;
    case kernels::IsaLevel::kAvx512:
      return !integers;
    case kernels::IsaLevel::kAvx512Vnni:
      return integers;
    case kernels::IsaLevel::kAvx512Bf16:
      return format == WeightFormat::kBF16;
    case kernels::IsaLevel::kAmx:
      return format != WeightFormat::kF32;
  }
  return true;
}

std::vector<std::tuple<kernels::IsaLevel, WeightFormat>> demo_cases() {
  std::vector<std::tuple<kernels::IsaLevel, WeightFormat>> cases;
  for (const kernels::IsaLevel isa : kernels::available_isa_levels()) {
    for (const WeightFormat format :
         {WeightFormat::kF32, WeightFormat::kBF16, WeightFormat::kInt8, WeightFormat::kInt4}) {
      if (has_its_own(isa, format)) cases.emplace_back(isa, format);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(AllLevels, DemoModel, testing::ValuesIn(demo_cases()), [](const auto& each) {
  return identifier(std::string(kernels::isa_name(std::get<0>(each.param))) + "_" +
                    std::string(weight_format_name(std::get<1>(each.param))));
});

class Int8KeysAndValues : public testing::TestWithParam<kernels::IsaLevel> {};

TEST_P(Int8KeysAndValues, AreBitIdenticalInEveryWay) {
  const kernels::IsaLevel isa = GetParam();
  if (isa == kernels::IsaLevel::kReference) {
    expect_bit_identity(test::demo_model_dir(), {.compute = DType::kBF16}, isa, {2}, 8, 12, DType::kI8);
  } else {
    expect_bit_identity(test::demo_model_dir(), {.compute = DType::kBF16}, isa, {1, 2}, 10, 32, DType::kI8);
  }
}

INSTANTIATE_TEST_SUITE_P(AllLevels, Int8KeysAndValues, testing::ValuesIn(kernels::available_isa_levels()),
                         [](const auto& each) {
                           return identifier(std::string(kernels::isa_name(each.param)));
                         });

/// Of weights that stay in their GGUF file's blocks.
class BlockModel : public testing::TestWithParam<WeightFormat> {};

TEST_P(BlockModel, IsBitIdenticalInEveryWay) {
  const auto path = test::temp_dir() / "blocks.gguf";
  test::write_block_model(path, [](std::string_view) { return weight_format_name(GetParam()); });
  for (const kernels::IsaLevel isa : kernels::available_isa_levels()) {
    if (isa != kernels::IsaLevel::kAvx2 && isa != kernels::IsaLevel::kAvx2Vnni &&
        isa != kernels::IsaLevel::kAvx512Vnni)
      continue;  // those with kernels of their own
    SCOPED_TRACE(kernels::isa_name(isa));
    expect_bit_identity(path, {.compute = DType::kBF16}, isa, {2}, 8);
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockModel, testing::ValuesIn(test::kGgmlFormats),
                         [](const auto& each) { return std::string(weight_format_name(each.param)); });

class GoldenModel : public testing::TestWithParam<const char*> {};

TEST_P(GoldenModel, IsBitIdenticalInEveryWay) {
  auto dir = std::filesystem::path("tests/model/fixtures") / GetParam();
  if (!std::filesystem::exists(dir)) {
    const auto relative = std::filesystem::path("golden-models") / GetParam();
    QUIRE_NEEDS_DATA(relative);
    dir = test::data_dir() / relative;
  }
  for (const kernels::IsaLevel isa : kernels::available_isa_levels()) {
    if (isa != kernels::IsaLevel::kReference && !has_its_own(isa, WeightFormat::kF32)) continue;
    SCOPED_TRACE(kernels::isa_name(isa));
    expect_bit_identity(dir, options_of(WeightFormat::kF32), isa, {2}, 16);
  }
  expect_bit_identity(dir, options_of(WeightFormat::kInt8), kernels::best_isa_level(), {2}, 16);
}

INSTANTIATE_TEST_SUITE_P(All, GoldenModel,
                         testing::Values("llama3-tied", "llama-linear-rope", "mistral-window", "qwen2",
                                         "qwen3",
                                         // windows, alternating with full attention, and experts
                                         "mistral-one-kv", "gemma2", "gemma2-odd", "gemma3-nested",
                                         "mixtral-window", "qwen3-moe-odd"),
                         [](const auto& each) { return identifier(each.param); });

}  // namespace
}  // namespace quire::backend
