// Patterns as Oniguruma reads them, against what the tokenizers library gave (fixtures/pattern_cases.py).
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/tokenize/tokenizer_files.h"
#include "tokenize/regex.h"

namespace quire::tokenize {
namespace {

using Strings = std::vector<std::string>;

/// The matches that are not empty; or the error.
Strings matches(const Regex& regex, std::string_view text) {
  std::vector<Span> spans;
  regex.find_all(text, spans);
  Strings out;
  for (const Span& span : spans) {
    if (span.begin < span.end) out.emplace_back(text.substr(span.begin, span.end - span.begin));
  }
  return out;
}

Strings matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  return regex ? matches(*regex, text) : Strings{regex.error()};
}

json::value fixture() { return read_json_file("tests/tokenize/fixtures/pattern_cases.json"); }

TEST(Pattern, KnownAndRandomOnesMatchAsInOniguruma) {
  size_t compared = 0;
  const json::value file = fixture();
  for (const json::value& entry : file.at("patterns").as_array()) {
    const std::string pattern(entry.at("pattern").as_string());
    SCOPED_TRACE(pattern);
    const auto regex = Regex::compile(pattern);
    ASSERT_TRUE(regex) << regex.error();
    for (const json::value& row : entry.at("rows").as_array()) {
      const std::string text(row.at(0).as_string());
      SCOPED_TRACE(text);
      Strings expected;
      for (const json::value& match : row.at(1).as_array()) expected.emplace_back(match.as_string());
      EXPECT_EQ(matches(*regex, text), expected);
      ++compared;
    }
  }
  EXPECT_GE(compared, 600U);
}

TEST(Pattern, IdsBehindKnownOnesAreThoseOfTheTokenizersLibrary) {
  const json::value file = fixture();
  json::value base = read_json_file("tests/tokenize/fixtures/tokenizer_cases.json").at("bases").at("byte");
  size_t compared = 0;
  for (const json::value& entry : file.at("tokenizers").as_array()) {
    SCOPED_TRACE(entry.at("name").as_string().c_str());
    base.as_object()["pre_tokenizer"] = entry.at("pre_tokenizer");
    const auto tokenizer = test::load_tokenizer(base);
    for (const json::value& row : entry.at("rows").as_array()) {
      const std::string text(row.at(0).as_string());
      EXPECT_EQ(tokenizer->encode(text, true), test::ids_of(row.at(1))) << text;
      ++compared;
    }
  }
  EXPECT_GE(compared, 50U);
}

TEST(Pattern, MarksAreWordCharactersToBoundaries) {
  EXPECT_EQ(matches(R"(\be)", "e\u0301e -e"), (Strings{"e", "e"}));
  EXPECT_EQ(matches(R"(e\b)", "e\u0301 e"), Strings{"e"});
  EXPECT_EQ(matches(R"(a\b)", "a\u00b2 a"), Strings{"a"});
  EXPECT_EQ(matches(R"(a\B.)", "a\u0301 a-"), Strings{"a\u0301"});
  EXPECT_EQ(matches(R"(\b\d+\b)", "12 3x"), Strings{"12"});
}

TEST(Pattern, CodesOfCharacters) {
  EXPECT_EQ(matches(R"(\x{4e2d}+)", "a中中"), Strings{"中中"});
  EXPECT_EQ(matches(R"([\x{4e00}-\x{9fff}\x41]+)", "a中A"), Strings{"中A"});
  EXPECT_EQ(matches(R"(\xe4\xb8\xad+)", "中中"), Strings{"中中"});
  EXPECT_EQ(matches(R"(\x41{2}+)", "AAAA"), Strings{"AAAA"});
}

TEST(Pattern, SetsOfSets) {
  EXPECT_EQ(matches("[a-z&&[^aeiou]]+", "stream"), (Strings{"str", "m"}));
  EXPECT_EQ(matches("[^a-z&&[^aeiou]]+", "strEam"), Strings{"Ea"});
  EXPECT_EQ(matches("[a[0-9]_]+", "a1_b"), Strings{"a1_"});
  EXPECT_EQ(matches(R"([\W\d]+)", "a1 2b"), Strings{"1 2"});
  EXPECT_EQ(matches("[a&&b]|c", "abc"), Strings{"c"});
  EXPECT_EQ(matches("[^a&&b]+", "abc"), Strings{"abc"});
  EXPECT_EQ(matches("[^(\\s|[.,!?…])]+", "(one) two|three…"), (Strings{"one", "two", "three"}));
  EXPECT_EQ(matches("(?i)[A-C&&[^B]]+", "abcC"), (Strings{"a", "cC"}));
  EXPECT_EQ(matches(R"((?i)[\p{Lu}]+|.)", "aB日"), (Strings{"aB", "日"}));
  EXPECT_EQ(matches(R"([a\-[b]]+)", "a-b"), Strings{"a-b"});
  EXPECT_EQ(matches("a(?i)b|c", "aC ac aB c"), (Strings{"aC", "ac", "aB"}));
  EXPECT_EQ(matches("[.a.]+", "a."), Strings{"a."});
}

TEST(Pattern, SetsOfSetsHaveRoomForLongTexts) {
  const std::string pattern(fixture().at("patterns").at(0).at("pattern").as_string());  // Kimi-K2's
  for (const std::string_view letter : {"a", "ж", "日"}) {
    std::string text;
    while (text.size() < 3'000'000) text += letter;
    EXPECT_THAT(matches(pattern, text), testing::ElementsAre(text));
  }
}

TEST(Pattern, WhatNeitherUnderstandsIsRefused) {
  std::string deep;
  for (int i = 0; i < 100; ++i) deep += "[a";
  std::string many;
  for (int i = 0; i < 100; ++i) many += "[^[a" + std::to_string(i) + "]]";
  for (const std::string& pattern :
       {std::string("[a-[b]]"), std::string(R"(\x{110000})"), std::string(R"(\x{d800})"),
        std::string(R"(\x{})"), std::string(R"(\x{4g})"), std::string(R"(\xe4)"), std::string("[a[b]"),
        std::string("[[b-a]&&a]"), deep, many}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_NE(regex.error().find("bad pattern"), std::string::npos) << regex.error();
  }
}

}  // namespace
}  // namespace quire::tokenize
