// A Replace of a hostile file multiplies a text, but not without end.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "tests/text/tokenizer_files.h"

namespace quire {
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
std::string error_of(const Work& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(ReplaceLimits, OfANormalizer) {
  const auto tokenizer = replacing("normalizer", std::string(1 << 20, 'b'));
  EXPECT_EQ(tokenizer->encode("a", false).size(), size_t{1} << 20);
  EXPECT_THAT(error_of([&] { tokenizer->encode(std::string(65, 'a'), false); }),
              HasSubstr("'Replace' makes more than 64 MiB"));
}

TEST(ReplaceLimits, OfADecoder) {
  const auto whole = replacing("decoder", std::string(64 << 10, 'b'));
  const std::vector<TokenId> ids = {0, 1, 0};
  EXPECT_EQ(whole->decode(ids, false).size(), (size_t{128} << 10) + 1);
  EXPECT_EQ(test::decode_in_pieces(*whole, ids, false), whole->decode(ids, false));
  const auto more = replacing("decoder", std::string((64 << 10) + 1, 'b'));
  const char* said = "'Replace' makes more than 64 KiB of one token";
  EXPECT_THAT(error_of([&] { more->decode(ids, false); }), HasSubstr(said));
  EXPECT_THAT(error_of([&] { more->token_bytes(0); }), HasSubstr(said));
  Detokenizer detokenizer(*more, false);
  EXPECT_THAT(error_of([&] {
                detokenizer.push(0);
                detokenizer.flush();
              }),
              HasSubstr(said));
  EXPECT_EQ(more->token_bytes(1), "b");
}

}  // namespace
}  // namespace quire
