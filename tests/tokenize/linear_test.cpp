// Encoding is linear in the text: a line of 512 KiB of the same over and over, for every kind of vocabulary
// and step. Quadratic work would be 10^11 steps; the guard is far above what linear work takes anywhere.
#include <array>
#include <ctime>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/support/data.h"
#include "tests/support/sanitized.h"
#include "tests/tokenize/tokenizer_files.h"

namespace quire::tokenize {
namespace {

constexpr size_t kLineBytes = size_t{test::kSanitized ? 256 : 512} << 10;
constexpr double kHungSeconds = 10;  // of the thread's own time

constexpr std::array<std::string_view, 15> kUnits = {
    "a",      "A",  " ",   "7", "\u4e2d", "\u0301", "ab", "\n", "!", "\U0001F600", "\u2581", "\u0301\u0323",
    "\uFDFA", " a", "\r\n"};

std::string line_of(std::string_view unit, size_t bytes = kLineBytes) {
  std::string line;
  while (line.size() + unit.size() <= bytes) line += unit;
  return line;
}

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

void expect_linear(const Tokenizer& tokenizer) {
  for (const std::string_view unit : kUnits) {
    SCOPED_TRACE(fmt::format("'{}'", unit));
    // What follows makes a pattern that looks for the end of a run go back.
    const std::string text = line_of(unit) + "x";
    const double begin = thread_seconds();
    const auto ids = tokenizer.encode(text, false);
    EXPECT_LT(thread_seconds() - begin, kHungSeconds);
    EXPECT_LE(ids.size(), 32 * text.size());
  }
}

TEST(Linear, EveryVocabularyOfTheTestData) {
  QUIRE_NEEDS_DATA("tokenizer-llama3");
  const auto data = test::data_dir();
  expect_linear(*Tokenizer::load(data / "tokenizer-hf-json" / "gpt2_tokenizer.json"));
  expect_linear(*Tokenizer::load(data / "tokenizer-hf-json" / "llama_tokenizer.json"));
  expect_linear(*Tokenizer::load(data / "tokenizer-llama2" / "tokenizer.model"));
  expect_linear(*Tokenizer::load(data / "tokenizer-llama3" / "tokenizer.model"));
}

TEST(Linear, UnigramWordPieceAndSentencePiece) {
  for (const char* name :
       {"trained_bpe.model", "trained_unigram.model", "trained_unigram.json", "trained_wordpiece.json"}) {
    SCOPED_TRACE(name);
    expect_linear(*Tokenizer::load(std::string("tests/tokenize/fixtures/") + name));
  }
}

/// A model that costs nothing, and `steps` as further members of the file.
std::unique_ptr<Tokenizer> with_steps(std::string_view steps) {
  return test::load_tokenizer(fmt::format(
      R"({{"model": {{"type": "WordLevel", "unk_token": "?", "vocab": {{"?": 0}}}}, {}}})", steps));
}

TEST(Linear, EveryNormalizer) {
  for (
      const std::string_view step :
      {R"({"type": "NFC"})", R"({"type": "NFD"})", R"({"type": "NFKC"})", R"({"type": "NFKD"})",
       R"({"type": "Lowercase"})", R"({"type": "StripAccents"})", R"({"type": "Nmt"})",
       R"({"type": "ByteLevel"})", R"({"type": "Strip", "strip_left": true, "strip_right": true})",
       R"({"type": "Replace", "pattern": {"String": "a"}, "content": "ba"})",
       R"({"type": "Replace", "pattern": {"String": "aab"}, "content": ""})",
       R"({"type": "Replace", "pattern": {"Regex": "\\s+$"}, "content": ""})",
       R"({"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "\u2581"})",
       R"({"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "lowercase": true})"}) {
    SCOPED_TRACE(step);
    expect_linear(*with_steps(fmt::format(R"("normalizer": {})", step)));
  }
}

TEST(Linear, EveryPreTokenizer) {
  const auto split = [](std::string_view pattern) {
    return json::serialize(json::object{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  };
  std::vector<std::string> steps = {
      split(
          R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      split(
          R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)"),
      R"({"type": "ByteLevel", "add_prefix_space": true, "use_regex": true})",
      R"({"type": "Digits", "individual_digits": true})",
      R"({"type": "Digits", "individual_digits": false})",
      R"({"type": "Whitespace"})",
      R"({"type": "WhitespaceSplit"})",
      R"({"type": "BertPreTokenizer"})",
      R"({"type": "CharDelimiterSplit", "delimiter": "a"})"};
  for (const char* behavior : {"Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"}) {
    steps.push_back(fmt::format(R"({{"type": "Punctuation", "behavior": "{}"}})", behavior));
  }
  for (const char* scheme : {"first", "always", "never"}) {
    steps.push_back(fmt::format(
        R"({{"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "{}", "split": true}})",
        scheme));
  }
  for (const std::string& step : steps) {
    SCOPED_TRACE(step);
    expect_linear(*with_steps(fmt::format(R"("pre_tokenizer": {})", step)));
  }
}

TEST(Linear, ManyAddedTokens) {
  std::string list;
  int id = 1;
  const auto add = [&](std::string_view content, std::string_view more) {
    list += fmt::format(R"({}{{"id": {}, "content": "{}", "special": false, {}}})", list.empty() ? "" : ", ",
                        id++, content, more);
  };
  for (int i = 0; i < 2000; ++i) add(fmt::format("a<{}>", i), R"("normalized": false)");
  for (size_t i = 2; i < 32; ++i) add(line_of("a", i) + "!", R"("normalized": true)");
  add(" ", R"("normalized": false, "rstrip": true, "lstrip": true)");
  add("!", R"("normalized": false, "single_word": true)");
  add("\\n", R"("normalized": true, "rstrip": true)");
  expect_linear(*with_steps(fmt::format(R"("added_tokens": [{}])", list)));
}

TEST(Linear, WordPieceOfLongWords) {
  expect_linear(*test::load_tokenizer(std::string_view(
      R"({"model": {"type": "WordPiece", "unk_token": "?", "continuing_subword_prefix": "##",
                        "max_input_chars_per_word": 2000000000,
                        "vocab": {"?": 0, "a": 1, "##a": 2, "##aa": 3, "##aaaa": 4, "ab": 5, "##ab": 6}}})")));
}

}  // namespace
}  // namespace quire::tokenize
