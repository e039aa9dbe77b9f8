// Checkpoints whose config ties the head to the embeddings and that have a head all the same.
#include <cstring>
#include <functional>
#include <span>
#include <vector>

#include <gmock/gmock.h>

#include "backend/cpu/inspect.h"
#include "base/json.h"
#include "formats/json_file.h"
#include "formats/safetensors.h"
#include "tests/model/gguf_support.h"
#include "tests/model/runner.h"
#include "tests/support/data.h"

namespace quire::model {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr std::array<TokenId, 6> kPrompt = {3, 1, 4, 1, 5, 9};

/// A tied fixture with one more tensor, written as a model directory.
class TiedHead : public testing::TestWithParam<const char*> {
 protected:
  std::filesystem::path fixture_ = std::filesystem::path("tests/model/fixtures") / GetParam();
  formats::Safetensors file_ = formats::Safetensors::open(fixture_);

  const TensorView& embedding() const { return file_.at("model.embed_tokens.weight"); }

  /// The embedding's values in another order and another type.
  std::vector<float> values(bool same) const {
    const auto* bits = embedding().as<uint16_t>();
    std::vector<float> out(embedding().num_elements());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = bf16_to_f32(bits[same ? i : out.size() - 1 - i]);
    }
    return out;
  }

  std::filesystem::path with_head(std::span<const float> head, bool tied, bool as_f32) const {
    std::vector<uint16_t> bits;
    for (const float value : head) bits.push_back(f32_to_bf16(value));
    const auto* data = as_f32 ? reinterpret_cast<const std::byte*>(head.data())
                              : reinterpret_cast<const std::byte*>(bits.data());
    const auto dir = test::temp_dir() / (tied ? "tied" : "own");
    std::filesystem::create_directories(dir);
    std::vector<formats::NamedTensor> tensors;
    for (const auto& [name, view] : file_.tensors()) tensors.push_back({name, view});
    tensors.push_back({"lm_head.weight", {as_f32 ? DType::kF32 : DType::kBF16, embedding().shape, data}});
    formats::write_safetensors(dir / "model.safetensors", tensors);
    json::object config = read_json_file(fixture_ / "config.json").get_object();
    config["tie_word_embeddings"] = tied;
    formats::write_json_file(dir / "config.json", config);
    return dir;
  }

  static std::vector<float> logits(const std::filesystem::path& model) {
    return test::Runner(model, kernels::best_isa_level(), 1, DType::kF32).all_logits(kPrompt, kPrompt.size());
  }
};

std::string told(const std::function<void()>& work) {
  testing::internal::CaptureStderr();
  work();
  return testing::internal::GetCapturedStderr();
}

TEST_P(TiedHead, IsTheHeadWhereItDiffers) {
  const auto values = this->values(false);
  const auto tied = with_head(values, true, false);
  std::vector<float> computed;
  EXPECT_THAT(told([&] { computed = logits(tied); }),
              HasSubstr("tensor 'lm_head.weight' differs from 'model.embed_tokens.weight'"));
  EXPECT_EQ(computed, logits(with_head(values, false, false)));
  EXPECT_NE(computed, logits(fixture_));
  EXPECT_EQ(backend::cpu::inspect_model(tied).num_parameters,
            backend::cpu::inspect_model(fixture_).num_parameters + embedding().num_elements());
}

TEST_P(TiedHead, GoesIntoGgufWhereItDiffers) {
  const auto tied = with_head(values(false), true, false);
  try {
    EXPECT_EQ(logits(test::as_gguf(tied, formats::kGgmlF32)), logits(tied));
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("GGUF has no key")) << "some fixtures cannot be written";
  }
}

TEST_P(TiedHead, IsNotLookedAtWhereItIsTheSame) {
  for (const bool as_f32 : {false, true}) {
    const auto tied = with_head(values(true), true, as_f32);
    EXPECT_THAT(told([&] { EXPECT_EQ(logits(tied), logits(fixture_)); }), Not(HasSubstr("lm_head")));
    EXPECT_EQ(backend::cpu::inspect_model(tied).num_parameters,
              backend::cpu::inspect_model(fixture_).num_parameters);
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TiedHead,
                         testing::Values("llama-yarn", "granite-tied", "gemma2-odd", "gemma3-odd",
                                         "smollm3-odd", "qwen2-odd", "olmo2-tied"),
                         [](const auto& test_case) {
                           std::string name = test_case.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace quire::model
