#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "formats/safetensors.h"
#include "tests/model/runner.h"
#include "tests/support/data.h"

namespace quire::model {
namespace {

using test::Runner;

constexpr size_t kChunk = 7;

bool same_bits(std::span<const float> a, std::span<const float> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

struct Expected {
  std::vector<std::vector<TokenId>> input_ids;
  std::vector<std::vector<TokenId>> greedy;
  std::vector<float> logits;  // [row][position][vocab]
  size_t vocab = 0;

  explicit Expected(const std::filesystem::path& dir) {
    const formats::Safetensors file = formats::Safetensors::open(dir / "expected.safetensors");
    input_ids = ids(file.at("input_ids"));
    greedy = ids(file.at("greedy"));
    const TensorView& view = file.at("logits");
    vocab = static_cast<size_t>(view.shape[2]);
    logits.assign(view.as<float>(), view.as<float>() + view.num_elements());
  }

  static std::vector<std::vector<TokenId>> ids(const TensorView& view) {
    std::vector<std::vector<TokenId>> out;
    for (int64_t row = 0; row < view.shape[0]; ++row) {
      const int64_t* from = view.as<int64_t>() + row * view.shape[1];
      out.emplace_back(from, from + view.shape[1]);
    }
    return out;
  }

  std::span<const float> row_logits(size_t row) const {
    const size_t count = input_ids[row].size() * vocab;
    return std::span(logits).subspan(row * count, count);
  }
};

float largest_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float worst = 0.0F;
  for (size_t i = 0; i < a.size(); ++i) {
    const float d = std::abs(a[i] - b[i]);
    if (!(d <= worst)) worst = d;
  }
  return worst;
}

using Case = std::tuple<const char*, kernels::IsaLevel, uint32_t>;

constexpr auto kGoldenFixtures = "tests/model/fixtures";

/// Those made by tools/make_golden.py are in the repository, the others in the shared data.
std::filesystem::path model_dir(const char* name) {
  const auto own = std::filesystem::path(kGoldenFixtures) / name;
  return std::filesystem::exists(own) ? own : test::data_dir() / "golden-models" / name;
}

#define QUIRE_NEEDS_MODEL(name)                  \
  if (!std::filesystem::exists(model_dir(name))) \
  QUIRE_NEEDS_DATA(std::filesystem::path("golden-models") / name)

/// How long sequences may become; 0: what the model can. One fixture tests longrope's short factors.
uint32_t longest(std::string_view name) { return name == "phi3-longrope-short" ? 64 : 0; }

class GoldenModel : public testing::TestWithParam<Case> {};

TEST_P(GoldenModel, LogitsAndGreedyContinuation) {
  const auto& [name, isa, threads] = GetParam();
  QUIRE_NEEDS_MODEL(name);
  const auto dir = model_dir(name);
  const Expected expected(dir);
  Runner runner(dir, isa, threads, DType::kF32, longest(name));
  for (size_t row = 0; row < expected.input_ids.size(); ++row) {
    const auto& ids = expected.input_ids[row];
    const auto whole = runner.all_logits(ids, ids.size());
    EXPECT_LE(largest_difference(whole, expected.row_logits(row)), 2e-4F);
    EXPECT_TRUE(same_bits(whole, runner.all_logits(ids, kChunk)));
    EXPECT_TRUE(same_bits(whole, runner.all_logits(ids, 1)));
    EXPECT_EQ(runner.greedy(ids, expected.greedy[row].size(), ids.size()).ids, expected.greedy[row]);
    EXPECT_EQ(runner.greedy(ids, expected.greedy[row].size(), kChunk).ids, expected.greedy[row]);
  }
}

// Both rows in one batch, of odd chunks that do not go in step, with other sequences around them.
TEST_P(GoldenModel, BatchedWithOthersIsBitIdentical) {
  const auto& [name, isa, threads] = GetParam();
  QUIRE_NEEDS_MODEL(name);
  const auto dir = model_dir(name);
  const Expected expected(dir);
  for (const DType compute : {DType::kF32, DType::kBF16}) {
    Runner runner(dir, isa, threads, compute, longest(name));
    const auto& a = expected.input_ids[0];
    const auto& b = expected.input_ids[1];
    const auto alone_a = runner.all_logits(a, a.size());
    const auto alone_b = runner.all_logits(b, b.size());
    runner.reset();
    std::vector<float> batched_a;
    std::vector<float> batched_b;
    size_t at_a = 0;
    size_t at_b = 0;
    for (size_t step = 0; at_a < a.size() || at_b < b.size(); ++step) {
      const size_t take_a = std::min<size_t>(a.size() - at_a, 1 + step * 5 % 13);
      const size_t take_b = std::min<size_t>(b.size() - at_b, step % 3 * 4);
      std::vector<Runner::Part> parts = {{2, {TokenId(step), 3, 5}, 0}};
      if (take_b > 0) {
        parts.push_back({1, {b.begin() + at_b, b.begin() + at_b + take_b}, uint32_t(take_b)});
      }
      parts.push_back({3 + step % 2, {7}, 1});
      if (take_a > 0) {
        parts.push_back({0, {a.begin() + at_a, a.begin() + at_a + take_a}, uint32_t(take_a)});
      }
      const auto logits = runner.step(parts);
      const auto* from = logits.data();
      batched_b.insert(batched_b.end(), from, from + take_b * expected.vocab);
      from += (take_b + 1) * expected.vocab;
      batched_a.insert(batched_a.end(), from, from + take_a * expected.vocab);
      at_a += take_a;
      at_b += take_b;
    }
    EXPECT_TRUE(same_bits(alone_a, batched_a)) << dtype_name(compute);
    EXPECT_TRUE(same_bits(alone_b, batched_b)) << dtype_name(compute);
  }
}

class GoldenModelThreads : public testing::TestWithParam<std::tuple<const char*, kernels::IsaLevel>> {};

TEST_P(GoldenModelThreads, DoNotMatter) {
  const auto& [name, isa] = GetParam();
  QUIRE_NEEDS_MODEL(name);
  const auto dir = model_dir(name);
  const Expected expected(dir);
  for (const DType compute : {DType::kF32, DType::kF16, DType::kBF16}) {
    Runner one(dir, isa, 1, compute, longest(name));
    Runner many(dir, isa, 2, compute, longest(name));
    for (const auto& ids : expected.input_ids) {
      EXPECT_TRUE(same_bits(one.all_logits(ids, ids.size()), many.all_logits(ids, 11)))
          << dtype_name(compute);
    }
  }
}

std::vector<const char*> fixtures() {
  static const std::vector<std::string> names = [] {
    std::vector<std::string> out;
    for (const auto& entry : std::filesystem::directory_iterator(kGoldenFixtures)) {
      if (std::filesystem::exists(entry.path() / "expected.safetensors"))
        out.push_back(entry.path().filename());
    }
    std::sort(out.begin(), out.end());
    return out;
  }();
  std::vector<const char*> out;
  for (const std::string& name : names) out.push_back(name.c_str());
  return out;
}

TEST(SlidingWindow, OfACallerIsAsTheModelsOwn) {
  const std::filesystem::path own = std::filesystem::path(kGoldenFixtures) / "mistral-odd";
  const std::filesystem::path all = std::filesystem::path(testing::TempDir()) / "mistral-that-sees-all";
  std::filesystem::remove_all(all);
  std::filesystem::copy(own, all);
  std::ifstream file(own / "config.json");
  std::string config{std::istreambuf_iterator<char>(file), {}};
  const std::string window = R"("sliding_window": 7)";
  ASSERT_NE(config.find(window), std::string::npos);
  config.replace(config.find(window), window.size(), R"("sliding_window": null)");
  std::ofstream(all / "config.json") << config;

  const auto ids = Expected(own).input_ids.front();
  const kernels::IsaLevel isa = kernels::available_isa_levels().back();
  const auto logits = [&](const std::filesystem::path& model, uint32_t sliding_window, size_t chunk) {
    return Runner(model, isa, 1, std::nullopt, 0, 64, 16, sliding_window).all_logits(ids, chunk);
  };
  const auto expected = logits(own, 0, ids.size());
  EXPECT_FALSE(same_bits(logits(all, 0, ids.size()), expected));
  EXPECT_TRUE(same_bits(logits(all, 7, ids.size()), expected));
  EXPECT_TRUE(same_bits(logits(all, 7, 3), expected));
  EXPECT_TRUE(same_bits(logits(own, 100, ids.size()), expected));  // wider than its own
}

TEST(Fixtures, AreAllThere) { EXPECT_EQ(fixtures().size(), 36U) << "run from the root of the repository"; }

const auto kModels = testing::Values("gemma2", "llama3-tied", "llama-linear-rope", "mistral-window",
                                     "mixtral", "phi3", "qwen2", "qwen3", "smollm3");

std::string label(const char* model, kernels::IsaLevel isa) {
  std::string name = fmt::format("{}_{}", model, kernels::isa_name(isa));
  std::replace(name.begin(), name.end(), '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenModel,
                         testing::Combine(kModels, testing::ValuesIn(kernels::available_isa_levels()),
                                          testing::Values(1U, 2U)),
                         [](const auto& test_case) {
                           const Case& c = test_case.param;
                           return fmt::format("{}_{}_threads", label(std::get<0>(c), std::get<1>(c)),
                                              std::get<2>(c));
                         });

INSTANTIATE_TEST_SUITE_P(Shapes, GoldenModel,
                         testing::Combine(testing::ValuesIn(fixtures()),
                                          testing::ValuesIn(kernels::available_isa_levels()),
                                          testing::Values(2U)),
                         [](const auto& test_case) {
                           return label(std::get<0>(test_case.param), std::get<1>(test_case.param));
                         });

INSTANTIATE_TEST_SUITE_P(Families, GoldenModelThreads,
                         testing::Combine(kModels, testing::ValuesIn(kernels::available_isa_levels())),
                         [](const auto& test_case) {
                           return label(std::get<0>(test_case.param), std::get<1>(test_case.param));
                         });

}  // namespace
}  // namespace quire::model
