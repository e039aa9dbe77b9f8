#include "formats/make_model.h"

#include <cmath>

#include <gmock/gmock.h>

#include "backend/cpu/inspect.h"
#include "base/error.h"
#include "base/json.h"
#include "formats/safetensors.h"
#include "tests/model/runner.h"
#include "tests/support/data.h"
#include "tokenize/tokenizer.h"

namespace quire::model {
namespace {

TEST(MakeModel, TinyRunsAndIsReproducible) {
  const auto a = test::temp_dir();
  const auto b = test::temp_dir();
  const auto c = test::temp_dir() / "to" / "make";
  formats::make_model("tiny", a, 1);
  formats::make_model("tiny", b, 1);
  formats::make_model("tiny", c, 2);
  const auto weights = [](const std::filesystem::path& dir) { return read_file(dir / "model.safetensors"); };
  EXPECT_EQ(weights(a), weights(b));
  EXPECT_NE(weights(a), weights(c));
  test::Runner runner(a, kernels::best_isa_level(), 2);
  const std::vector<TokenId> prompt = {384, 10, 20, 30};
  for (const float logit : runner.greedy(prompt, 20, 4).logits) ASSERT_TRUE(std::isfinite(logit));
}

TEST(MakeModel, WeightsAreNearNormal) {
  const auto dir = test::temp_dir();
  formats::make_model("tiny", dir, 1);
  const formats::Safetensors file = formats::Safetensors::open(dir);
  const TensorView& embedding = file.at("model.embed_tokens.weight");
  double sum = 0.0;
  double squares = 0.0;
  const size_t count = embedding.num_elements();
  for (size_t i = 0; i < count; ++i) {
    const double x = bf16_to_f32(embedding.as<uint16_t>()[i]);
    sum += x;
    squares += x * x;
  }
  EXPECT_NEAR(sum / static_cast<double>(count), 0.0, 5e-4);
  EXPECT_NEAR(std::sqrt(squares / static_cast<double>(count)), 0.02, 5e-4);
  const TensorView& norm = file.at("model.norm.weight");
  for (size_t i = 0; i < norm.num_elements(); ++i) EXPECT_EQ(bf16_to_f32(norm.as<uint16_t>()[i]), 1.0F);
}

TEST(MakeModel, TokenizerEncodesAnyText) {
  const auto dir = test::temp_dir();
  formats::make_model("tiny", dir, 1);
  const auto tokenizer = tokenize::Tokenizer::load(dir);
  EXPECT_EQ(tokenizer->vocab_size(), 640U);
  const std::string text = "Hello, W\u00f6rld!\n\t \u4f60\u597d ab";
  const auto ids = tokenizer->encode(text, true);
  EXPECT_EQ(ids.size(), text.size() + 1);
  EXPECT_EQ(ids.front(), 384);
  EXPECT_EQ(tokenizer->decode(ids, true), text);
  EXPECT_EQ(tokenizer->encode("<|eot_id|>", false), std::vector<TokenId>{384 + 9});
  EXPECT_FALSE(tokenizer->token_bytes(300).empty());
}

TEST(MakeModel, UnknownShapeNamesTheKnown) {
  try {
    formats::make_model("gpt-5", test::temp_dir(), 1);
    FAIL();
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), testing::HasSubstr("'gpt-5'"));
    for (const std::string& name : formats::model_shape_names()) {
      EXPECT_THAT(error.what(), testing::HasSubstr(name));
    }
  }
}

}  // namespace
}  // namespace quire::model
