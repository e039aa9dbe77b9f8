#include "decoder/forward_pass.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "backend/cpu/decoder.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/few_rows.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/weights.h"
#include "formats/model_config.h"
#include "kernels/context.h"
#include "kernels/quantize.h"
#include "tests/device_on_host/target.h"
#include "tests/device_on_host/tiny_model.h"
#include "tests/support/block_model.h"
#include "tests/support/data.h"

namespace quire::test::fibers {
namespace {

namespace cuda = backend::cuda;
constexpr uint32_t kBlockSize = 16;
constexpr uint32_t kNumBlocks = 24;

/// A model on the device, and sequences whose blocks are scattered.
class OnDevice {
 public:
  OnDevice(const std::filesystem::path& model, DType dtype, uint64_t order, uint32_t few_blocks = 128,
           std::optional<WeightFormat> quantization = std::nullopt)
      : device_(order),
        config_(formats::load_model_config(model)),
        weights_(cuda::load_weights(model, config_, dtype, pool_, nullptr, {.quantization = quantization})),
        groups_(static_cast<uint32_t>(model::group_layers(config_).windows.size())),
        cache_(config_, dtype, kNumBlocks * groups_, kBlockSize),
        gemm_(cublaslt(), nullptr),
        ops_(config_, weights_, cache_, gemm_, nullptr,
             {.rows = 64, .seqs = 8, .positions = 128, .logit_rows = 64, .few_blocks = few_blocks}),
        pass_(config_, dtype, 128) {
    for (uint32_t block = 0; block < cache_.num_blocks(); ++block) {
      free_.push_back((block * 7 + 3) % cache_.num_blocks());
    }
  }

  struct Part {
    size_t seq = 0;
    std::vector<TokenId> tokens;
  };
  /// One step; the logits of all its tokens.
  std::vector<float> step(const std::vector<Part>& parts) {
    std::vector<TokenId> tokens;
    std::vector<decoder::BatchSeq> seqs;
    for (const Part& part : parts) {
      if (part.seq >= tables_.size()) tables_.resize(part.seq + 1), lengths_.resize(part.seq + 1);
      tables_[part.seq].resize(groups_);
      const uint32_t first = lengths_[part.seq];
      const auto count = static_cast<uint32_t>(part.tokens.size());
      lengths_[part.seq] += count;
      for (std::vector<BlockId>& table : tables_[part.seq]) {
        while (table.size() * kBlockSize < lengths_[part.seq]) {
          table.push_back(free_.back());
          free_.pop_back();
        }
      }
      tokens.insert(tokens.end(), part.tokens.begin(), part.tokens.end());
      seqs.push_back({count, first, {}, count});
    }
    for (size_t i = 0; i < parts.size(); ++i) seqs[i].block_tables = tables_[parts[i].seq];
    pass_.compute(ops_, {cache_.groups(), cache_.num_blocks(), kBlockSize}, tokens, seqs);
    const std::span<const float> logits = pass_.logits(ops_, pass_.logit_rows());
    return {logits.begin(), logits.end()};
  }
  /// Lets few_rows() multiply by gates and up, and to queries, keys and values, where it is faster. Whether
  /// it does both.
  bool prepare_few_rows() {
    [[maybe_unused]] const SlowProducts slow;
    const auto takes = [&](const cuda::Matrix& of) {
      const cuda::GemmShape shape{weights_.dtype, weights_.dtype, of.n, of.k, of.bias != nullptr};
      const void* const matrices[] = {of.data};
      gemm_.prepare(shape, matrices, of.bias, cuda::kGemmRows);
      return gemm_.takes_few_rows(shape, cuda::kFewRows);
    };
    const bool of_gates = takes(weights_.layers[0].gate_up);
    return takes(weights_.layers[0].qkv) && of_gates;
  }
  const Device& device() const { return device_; }
  const model::ModelConfig& config() const { return config_; }

 private:
  Device device_;
  ThreadPool pool_{1};
  model::ModelConfig config_;
  cuda::ModelWeights weights_;
  uint32_t groups_;
  cuda::KvCache cache_;
  cuda::Gemm gemm_;
  cuda::CudaOps ops_;
  decoder::ForwardPass pass_;
  std::vector<BlockId> free_;
  std::vector<std::vector<std::vector<BlockId>>> tables_;
  std::vector<uint32_t> lengths_;
};

std::vector<TokenId> some_tokens(size_t count, uint32_t vocab, uint32_t seed) {
  std::vector<TokenId> out;
  for (size_t i = 0; i < count; ++i) out.push_back(static_cast<TokenId>((i * 37 + seed * 101 + 5) % vocab));
  return out;
}

/// The logits of all tokens, computed by the CPU's reference kernels.
std::vector<float> on_cpu(const std::filesystem::path& model, DType dtype,
                          const std::vector<TokenId>& tokens) {
  ThreadPool pool(1);
  kernels::KernelContext context{kernels::IsaLevel::kReference, pool};
  const auto decoder = backend::cpu::Decoder::load(model, {.compute = dtype, .own_blocks = false}, context);
  backend::cpu::KvCache cache(decoder->config(), dtype, kNumBlocks * 2, kBlockSize);
  const auto count = static_cast<uint32_t>(tokens.size());
  const auto tables = model::consecutive_tables(cache.num_groups(), (count + kBlockSize - 1) / kBlockSize, 0);
  const decoder::BatchSeq seq{count, 0, tables, count};
  const std::span<const float> logits = decoder->forward(context, cache, tokens, {&seq, 1});
  return {logits.begin(), logits.end()};
}

/// The root mean square of what two rows of logits differ by, relative to that of the expected ones.
double difference(std::span<const float> found, std::span<const float> expected) {
  double apart = 0;
  double all = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double one = expected[i];
    apart += (static_cast<double>(found[i]) - one) * (static_cast<double>(found[i]) - one);
    all += one * one;
  }
  return std::sqrt(apart / all);
}

/// Of experts: whose weights have the sum 1 or not, or in one GGUF file.
std::filesystem::path made_model(const std::string& name) {
  const std::filesystem::path model = temp_dir();
  if (name != "gguf-experts") {
    write_tiny_model_of_experts(model, name == "tiny-experts");
    return model;
  }
  write_block_model(
      model / "model.gguf", [](std::string_view) { return "Q8_0"; }, 4);
  return model / "model.gguf";
}

class Families : public testing::TestWithParam<const char*> {};

/// A prompt in two chunks beside another sequence, then single tokens.
TEST_P(Families, LogitsAreTheCpus) {
  const std::string name = GetParam();
  const bool is_made = name == "tiny-experts" || name == "tiny-experts-apart" || name == "gguf-experts";
  const std::filesystem::path fixture = std::filesystem::path("tests/model/fixtures") / name;
  const bool is_fixture = std::filesystem::exists(fixture);
  if (name != "demo" && !is_made && !is_fixture) QUIRE_NEEDS_DATA("golden-models/" + name);
  const std::filesystem::path model = name == "demo" ? demo_model_dir()
                                      : is_made      ? made_model(name)
                                      : is_fixture   ? fixture
                                                     : data_dir() / "golden-models" / name;
  for (const auto& [dtype, bound] : {std::pair{DType::kF32, 1e-5}, {DType::kBF16, 0.06}}) {
    // Their rows are no multiples of 16 bytes in bf16; and of experts that are nearly as good, rounding to
    // bf16 chooses others.
    if ((is_fixture || is_made) && dtype != DType::kF32) continue;
    OnDevice on_device(model, dtype, 1);
    const uint32_t vocab = on_device.config().vocab_size;
    const std::vector<TokenId> first = some_tokens(23, vocab, 1);
    const std::vector<TokenId> second = some_tokens(20, vocab, 2);
    const std::vector<float> expected_first = on_cpu(model, dtype, first);
    const std::vector<float> expected_second = on_cpu(model, dtype, second);
    const auto part = [](const std::vector<TokenId>& all, size_t from, size_t to) {
      return std::vector<TokenId>(all.begin() + static_cast<ptrdiff_t>(from),
                                  all.begin() + static_cast<ptrdiff_t>(to));
    };
    size_t done[2] = {0, 0};
    const std::vector<std::pair<size_t, size_t>> steps = {{9, 0}, {12, 18}, {1, 1}, {1, 1}};
    for (const auto& [more_first, more_second] : steps) {
      std::vector<OnDevice::Part> parts;
      if (more_first > 0) parts.push_back({0, part(first, done[0], done[0] + more_first)});
      if (more_second > 0) parts.push_back({1, part(second, done[1], done[1] + more_second)});
      const std::vector<float> logits = on_device.step(parts);
      size_t row = 0;
      const auto compare = [&](const std::vector<float>& expected, size_t from, size_t count) {
        for (size_t i = 0; i < count; ++i, ++row) {
          ASSERT_LT(difference(std::span(logits).subspan(row * vocab, vocab),
                               std::span(expected).subspan((from + i) * vocab, vocab)),
                    bound)
              << dtype_name(dtype) << " token " << from + i;
        }
      };
      compare(expected_first, done[0], more_first);
      compare(expected_second, done[1], more_second);
      done[0] += more_first;
      done[1] += more_second;
    }
    EXPECT_TRUE(on_device.device().findings().empty()) << on_device.device().report();
  }
}

TEST(ForwardPass, BitsDoNotDependOnTheSizeOfTiles) {
  QUIRE_NEEDS_DATA("golden-models/llama3-tied");
  const std::filesystem::path model = data_dir() / "golden-models" / "llama3-tied";
  // As a large tile and a small one, if there are enough of them, or as small ones.
  const std::vector<TokenId> prompt = some_tokens(60, 512, 1);
  const std::vector<TokenId> begin(prompt.begin(), prompt.begin() + 7);
  const std::vector<TokenId> rest(prompt.begin() + 7, prompt.end());
  std::vector<float> expected;
  for (const uint32_t few_blocks : {128U, 1U}) {
    OnDevice on_device(model, DType::kBF16, few_blocks, few_blocks);
    const std::vector<float> found = on_device.step({{3, prompt}});
    if (expected.empty()) expected = found;
    EXPECT_EQ(found, expected);
    std::vector<float> joined = on_device.step({{0, begin}, {1, begin}});
    joined.resize(joined.size() / 2);
    const std::vector<float> last = on_device.step({{1, {5}}, {0, rest}, {2, begin}});
    joined.insert(joined.end(), last.begin() + 512,
                  last.begin() + 512 + static_cast<ptrdiff_t>(rest.size() * 512));
    EXPECT_EQ(joined, expected);
    EXPECT_TRUE(on_device.device().findings().empty()) << on_device.device().report();
  }
}

/// Up to kFewRows one kernel multiplies by gates and up and applies the gates, and one multiplies and
/// rotates.
TEST(ForwardPass, BitsDoNotDependOnTheKernelsOfFewRows) {
  OnDevice on_device(demo_model_dir(), DType::kBF16, 1);
  EXPECT_TRUE(on_device.prepare_few_rows() || !SlowProducts::kIsSure);
  const uint32_t vocab = on_device.config().vocab_size;
  const std::vector<TokenId> prompt = some_tokens(cuda::kFewRows + 1, vocab, 1);
  const std::vector<float> expected = on_device.step({{0, prompt}});
  const std::vector<TokenId> few(prompt.begin(), prompt.end() - 1);
  std::vector<float> found = on_device.step({{1, few}});
  const std::vector<float> last = on_device.step({{1, {prompt.back()}}});
  found.insert(found.end(), last.begin(), last.end());
  EXPECT_EQ(found, expected);
  EXPECT_TRUE(on_device.device().findings().empty()) << on_device.device().report();
}

/// A tiny model quantized computes what one does whose weights `change` has made what they are then.
void expect_as_changed(WeightFormat format, bool has_experts, double bound, const RowChange& change) {
  SCOPED_TRACE(has_experts);
  const std::filesystem::path model = temp_dir();
  const std::filesystem::path changed = temp_dir();
  has_experts ? write_tiny_model_of_experts(model) : write_tiny_model(model);
  has_experts ? write_tiny_model_of_experts(changed, true, change) : write_tiny_model(changed, change);
  std::vector<std::vector<float>> expected;
  const std::vector<std::vector<OnDevice::Part>> steps = {
      {{0, some_tokens(9, kTinyVocabulary, 1)}},
      {{1, some_tokens(40, kTinyVocabulary, 2)}, {0, {5}}},
      {{1, {7}}}};
  {
    OnDevice plain(changed, DType::kBF16, 1);
    for (const auto& parts : steps) expected.push_back(plain.step(parts));
  }
  OnDevice quantized(model, DType::kBF16, 2, 128, format);
  for (size_t i = 0; i < steps.size(); ++i) {
    const std::vector<float> found = quantized.step(steps[i]);
    ASSERT_EQ(found.size(), expected[i].size());
    EXPECT_LT(difference(found, expected[i]), bound) << "step " << i;
  }
  EXPECT_TRUE(quantized.device().findings().empty()) << quantized.device().report();
}

/// The tiny models' weights are exact as int8, which scales the sums of their products by a power of 2.
TEST(ForwardPass, OfInt8IsThatOfTheNumbersThatItStandsFor) {
  for (const bool has_experts : {false, true}) expect_as_changed(WeightFormat::kInt8, has_experts, 0.01, {});
}

/// As int4 they are not exact, and neither is as bf16 what they are then.
TEST(ForwardPass, OfInt4IsNearlyThatOfTheNumbersThatItStandsFor) {
  const auto round = [](std::string_view tensor, std::span<float> row) {
    if (tensor == "model.embed_tokens.weight" || tensor.ends_with(".mlp.gate.weight")) return;
    std::vector<int8_t> integers(row.size());
    std::vector<int8_t> groups(row.size() / kernels::kInt4Group + 1);
    const float scale = kernels::quantize_int4(row.data(), row.size(), integers.data(), groups.data());
    for (size_t i = 0; i < row.size(); ++i) {
      row[i] = scale * static_cast<float>(groups[i / kernels::kInt4Group] * integers[i]);
    }
  };
  for (const bool has_experts : {false, true})
    expect_as_changed(WeightFormat::kInt4, has_experts, 0.05, round);
}

std::string family_name(const testing::TestParamInfo<const char*>& tested) {
  std::string name(tested.param);
  std::erase(name, '-');
  return name;
}
INSTANTIATE_TEST_SUITE_P(Golden, Families,
                         testing::Values("demo", "llama-linear-rope", "llama3-tied", "mistral-window", "phi3",
                                         "qwen2", "qwen3", "smollm3", "gemma2", "gemma2-one-kv",
                                         "gemma3-one-kv", "granite-one-kv", "olmo2-one-kv", "mixtral"),
                         family_name);
INSTANTIATE_TEST_SUITE_P(Made, Families,
                         testing::Values("tiny-experts", "tiny-experts-apart", "gguf-experts"), family_name);

}  // namespace
}  // namespace quire::test::fibers
