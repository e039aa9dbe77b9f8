// A hostile file multiplies a text, but not without end.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/tokenize/tokenizer_files.h"

namespace quire::tokenize {
namespace {

using test::load_tokenizer;
using testing::HasSubstr;

/// A tokenizer of the letters a and b, one of whose steps replaces an a by `content`.
std::unique_ptr<Tokenizer> replacing(std::string_view step, const std::string& content) {
  return load_tokenizer(fmt::format(
      R"({{"model": {{"type": "BPE", "vocab": {{"a": 0, "b": 1}}, "merges": []}},
          "{}": {{"type": "Replace", "pattern": {{"String": "a"}}, "content": "{}"}}}})",
      step, content));
}

template <class Work>
std::string said_by(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReplaceLimits, OfANormalizer) {
  // 64 KiB and 32 times what came in, over all parts of the text.
  const auto tokenizer = replacing("normalizer", std::string(64 << 10, 'b'));
  EXPECT_EQ(tokenizer->encode("a", false).size(), size_t{64} << 10);
  EXPECT_THAT(said_by([&] { tokenizer->encode("aa", false); }),
              HasSubstr("the tokenizer's normalizer 'Replace' makes the text too long: more than 32 times"));
  const auto less = replacing("normalizer", std::string(33, 'b'));
  EXPECT_EQ(less->encode(std::string(64 << 10, 'a'), false).size(), size_t{33 * 64} << 10);
  const auto more = replacing("normalizer", std::string(34, 'b'));
  EXPECT_THAT(said_by([&] { more->encode(std::string(128 << 10, 'a'), false); }), HasSubstr("'Replace'"));
}

/// One that has `step` forty times under `key`; x is an added token.
std::unique_ptr<Tokenizer> again_and_again(std::string_view key, std::string_view list,
                                           std::string_view step) {
  std::string steps(step);
  for (int i = 1; i < 40; ++i) steps += fmt::format(", {}", step);
  return load_tokenizer(fmt::format(
      R"({{"model": {{"type": "BPE", "vocab": {{"a": 0, "b": 1}}, "merges": []}},
          "added_tokens": [{{"id": 2, "content": "x", "special": true}}],
          "{}": {{"type": "Sequence", "{}": [{}]}}}})",
      key, list, steps));
}

TEST(ReplaceLimits, OfManyStepsTogether) {
  const std::string text(100'000, 'a');
  const auto normalized = [&](std::string_view step) {
    const auto tokenizer = again_and_again("normalizer", "normalizers", step);
    return said_by([&] { tokenizer->encode(text, false); });
  };
  const auto split = [&](std::string_view step) {
    const auto tokenizer = again_and_again("pre_tokenizer", "pretokenizers", step);
    return said_by([&] { tokenizer->encode("\u00e9" + text, false); });
  };
  EXPECT_THAT(normalized(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})"),
              HasSubstr("normalizer 'Replace'"));
  // It takes away again what it added.
  EXPECT_THAT(normalized(R"({"type": "Replace", "pattern": {"String": "a"}, "content": "bb"},
                            {"type": "Replace", "pattern": {"String": "bb"}, "content": "a"})"),
              HasSubstr("normalizer 'Replace'"));
  EXPECT_THAT(normalized(R"({"type": "Replace", "pattern": {"Regex": ""}, "content": "b"})"),
              HasSubstr("normalizer 'Replace'"));
  EXPECT_EQ(normalized(R"({"type": "Prepend", "prepend": "b"})"), "no error");
  EXPECT_EQ(split(R"({"type": "ByteLevel", "add_prefix_space": false, "use_regex": false})"),
            "the tokenizer's pre-tokenizer 'ByteLevel' makes the text too long: more than 32 times its input "
            "and more than 64 KiB");
  // Each part between added tokens is prepended to.
  const auto prepending =
      again_and_again("normalizer", "normalizers",
                      fmt::format(R"({{"type": "Prepend", "prepend": "{}"}})", std::string(1000, 'b')));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += "ax";
  EXPECT_THAT(said_by([&] { prepending->encode(many, false); }), HasSubstr("normalizer 'Prepend'"));
}

TEST(ReplaceLimits, OfADecoder) {
  const auto whole = replacing("decoder", std::string(64 << 10, 'b'));
  const std::vector<TokenId> ids = {0, 1, 0};
  EXPECT_EQ(whole->decode(ids, false).size(), (size_t{128} << 10) + 1);
  EXPECT_EQ(test::decode_in_pieces(*whole, ids, false), whole->decode(ids, false));
  const auto more = replacing("decoder", std::string((64 << 10) + 1, 'b'));
  const char* said = "'Replace' makes more than 64 KiB of one token";
  EXPECT_THAT(said_by([&] { more->decode(ids, false); }), HasSubstr(said));
  EXPECT_THAT(said_by([&] { more->token_bytes(0); }), HasSubstr(said));
  Detokenizer detokenizer(*more, false);
  EXPECT_THAT(said_by([&] {
                detokenizer.push(0);
                detokenizer.flush();
              }),
              HasSubstr(said));
  EXPECT_EQ(more->token_bytes(1), "b");
}

}  // namespace
}  // namespace quire::tokenize
