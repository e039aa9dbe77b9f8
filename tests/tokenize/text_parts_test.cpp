// The small parts under the tokenizer: Unicode, patterns.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "tokenize/added_tokens.h"
#include "tokenize/byte_level.h"
#include "tokenize/regex.h"
#include "tokenize/split.h"
#include "tokenize/unicode.h"

namespace quire::tokenize {
namespace {

TEST(Unicode, NormalizationForms) {
  EXPECT_EQ(to_normalization_form("e\u0301", NormalizationForm::kNfc), "é");
  EXPECT_EQ(to_normalization_form("é", NormalizationForm::kNfd), "e\u0301");
  EXPECT_EQ(to_normalization_form("ﬁ①", NormalizationForm::kNfkc), "fi1");
  EXPECT_EQ(to_normalization_form("한", NormalizationForm::kNfd), "\u1112\u1161\u11AB");
  EXPECT_EQ(to_normalization_form("\u1112\u1161\u11AB", NormalizationForm::kNfc), "한");
  // Marks are put in order; those of one class keep theirs.
  EXPECT_EQ(to_normalization_form("q\u0307\u0323\u0301", NormalizationForm::kNfd), "q\u0323\u0307\u0301");
  EXPECT_EQ(to_normalization_form(std::string_view("a\0é", 4), NormalizationForm::kNfd),
            std::string("a\0e\xCC\x81", 5));
}

TEST(Unicode, Lowercase) { EXPECT_EQ(to_lowercase("ÀΣß İẞ"), "àσß i\u0307ß"); }

TEST(Unicode, AsTheReferenceLibraryKnowsIt) {
  // Added by Unicode 9 and 14: no punctuation, no mark and no part of a composition there.
  EXPECT_TRUE(is_punctuation(0x2E42));
  EXPECT_FALSE(is_punctuation(0x2E43));
  EXPECT_TRUE(is_mark(0x1E944));
  EXPECT_FALSE(is_nonspacing_mark(0x1E944));
  EXPECT_FALSE(is_mark(0x1ACE));
  EXPECT_TRUE(is_nonspacing_mark(0x301));
  EXPECT_TRUE(is_control(0xAD));
  EXPECT_TRUE(is_control(0xE000));
  EXPECT_FALSE(is_control(0x8E2));
  EXPECT_EQ(to_normalization_form("\U00011935\U00011930", NormalizationForm::kNfc), "\U00011935\U00011930");
  EXPECT_EQ(to_normalization_form("e\u1ACE\u0301", NormalizationForm::kNfc), "e\u1ACE\u0301");
  EXPECT_EQ(to_normalization_form("\u32FF\uFB01", NormalizationForm::kNfkc), "\u32FFfi");
}

TEST(Unicode, NormalizationOfLongTextsEqualsThatOfTheirStretches) {
  // Text between ASCII is normalized by itself; the letter before it may take its head.
  EXPECT_EQ(to_normalization_form("abe\u0301\u00E9\u0301xyo\u0308", NormalizationForm::kNfc),
            "ab\u00E9\u00E9\u0301xy\u00F6");
  EXPECT_EQ(to_normalization_form("\u00E9\u0323z\u2019s", NormalizationForm::kNfc), "\u1EB9\u0301z\u2019s");
  EXPECT_EQ(to_normalization_form("\u0301a", NormalizationForm::kNfc), "\u0301a");
}

TEST(ByteLevel, EveryByteThereAndBack) {
  std::string all;
  for (int byte = 0; byte < 256; ++byte) all += static_cast<char>(byte);
  std::string written;
  append_byte_level(written, all);
  EXPECT_TRUE(is_valid_utf8(written));
  EXPECT_NE(written.find("Ġ"), written.npos);
  std::string back;
  append_from_byte_level(back, written);
  EXPECT_EQ(back, all);
  back.clear();
  append_from_byte_level(back, "Ġ日");  // one character is no byte: taken as it is
  EXPECT_EQ(back, "Ġ日");
}

std::vector<std::string> all_matches(std::string_view pattern, std::string_view text) {
  const auto regex = Regex::compile(pattern);
  if (!regex) return {regex.error()};
  std::vector<Span> spans;
  regex->find_all(text, spans);
  std::vector<std::string> out;
  for (const Span& span : spans) out.emplace_back(text.substr(span.begin, span.end - span.begin));
  return out;
}
using Strings = std::vector<std::string>;

// What Oniguruma gives, where PCRE2 left alone would not.
TEST(Regex, ReadsOnigurumasSyntax) {
  EXPECT_EQ(all_matches(R"(\s)", "a\u180E\u0085"), Strings{"\u0085"});
  EXPECT_EQ(all_matches(R"(\w+)", "e\u0301²_\u203F٣-"), Strings{"e\u0301²_\u203F٣"});
  EXPECT_EQ(all_matches(R"([\w-]+)", "a-b!"), Strings{"a-b"});
  EXPECT_EQ(all_matches(R"(\h+)", "xcafe \t"), Strings{"cafe"});
  EXPECT_EQ(all_matches(R"(\d{1,3}+)", "12345"), Strings{"12345"});
  EXPECT_EQ(all_matches(R"((?:ab){2}+c)", "ababababc"), Strings{"ababababc"});
  EXPECT_EQ(all_matches(R"(a{,2}b)", "aaab"), Strings{"aab"});
  EXPECT_EQ(all_matches(R"(x{a})", "x{a}"), Strings{"x{a}"});
  EXPECT_EQ(all_matches(R"(\p{L}++)", "añb1"), Strings{"añb"});
  EXPECT_EQ(all_matches("(?m:a.b)", "a\nb"), Strings{"a\nb"});
  EXPECT_EQ(all_matches("a.b", "a\nb a\rb"), Strings{"a\rb"});
  EXPECT_EQ(all_matches("^b|a$", "a\nb"), (Strings{"a", "b"}));
  EXPECT_EQ(all_matches(R"(\p{Han}+)", "日々、ー本"), (Strings{"日々", "本"}));
  EXPECT_EQ(all_matches(R"([\p{^L}\p{Upper}]+)", "aB1c"), Strings{"B1"});
  EXPECT_EQ(all_matches("[[:punct:]]+", "a+€."), Strings{"+€."});
  EXPECT_EQ(all_matches(R"(\u0061)", "a"), Strings{"a"});
  EXPECT_EQ(all_matches("(?i:'s)", "'S'ſ"), (Strings{"'S", "'ſ"}));
  EXPECT_EQ(all_matches("x*", "axxb"), (Strings{"", "xx", ""}));
  EXPECT_EQ(all_matches(R"(\s+(?!\S)|\s+)", "a   b"), (Strings{"  ", " "}));
}

TEST(Regex, RefusesWhatItCannotHonour) {
  for (const std::string_view pattern : {"(*NO_JIT)a", "(a", "a)", "[a", R"(\)", R"(\p{Nonsense})", R"(\C)",
                                         "(?R)", "a**", R"([[:nonsense:]])", R"(\p{L)", R"(\u00)", "(?#"}) {
    const auto regex = Regex::compile(pattern);
    ASSERT_FALSE(regex) << pattern;
    EXPECT_NE(regex.error().find("bad pattern"), std::string::npos) << regex.error();
  }
  EXPECT_FALSE(Regex::compile(std::string(100'000, 'a')));
}

TEST(Regex, NestedRepetitionHasRoom) {
  const std::string text = std::string(200'000, 'a') + "b";
  EXPECT_EQ(all_matches("(?:a|c)*b", text), Strings{text});
}

TEST(Split, BehavioursOfTheDocumentation) {
  const std::string text = "the-final--countdown";
  std::vector<Span> found;
  for (size_t at = text.find('-'); at != text.npos; at = text.find('-', at + 1))
    found.push_back({at, at + 1});
  const auto split = [&](SplitBehavior behavior, bool invert) {
    std::vector<Span> spans;
    split_at(text.size(), found, invert, behavior, spans);
    Strings out;
    for (const Span& span : spans) out.push_back(text.substr(span.begin, span.end - span.begin));
    return out;
  };
  EXPECT_EQ(split(SplitBehavior::kRemoved, false), (Strings{"the", "final", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::kRemoved, true), (Strings{"-", "-", "-"}));
  EXPECT_EQ(split(SplitBehavior::kIsolated, false), (Strings{"the", "-", "final", "-", "-", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::kMergedWithPrevious, false), (Strings{"the-", "final-", "-", "countdown"}));
  EXPECT_EQ(split(SplitBehavior::kMergedWithNext, false), (Strings{"the", "-final", "-", "-countdown"}));
  EXPECT_EQ(split(SplitBehavior::kContiguous, false), (Strings{"the", "-", "final", "--", "countdown"}));
}

TEST(TextFinder, FindsTheFirstAndLongest) {
  const std::vector<std::string_view> texts = {"<s", "<s>", "<ss>", "", "ab", "b<", "\xE6\x97\xA5"};
  const TextFinder finder(texts, {0, 1, 2, 3, 4, 5, 6});
  const auto found = [&](std::string_view text, size_t from = 0) -> std::optional<size_t> {
    const auto hit = finder.find(text, from);
    return hit ? std::optional(hit->value) : std::nullopt;
  };
  EXPECT_EQ(found("x<s>"), 1u);
  EXPECT_EQ(found("x<sx"), 0u);
  EXPECT_EQ(found("<ss"), 0u);
  EXPECT_EQ(found("<ss>"), 2u);
  EXPECT_EQ(found("ab<s>"), 4u);
  EXPECT_EQ(found("ab<s>", 1), 5u);
  EXPECT_EQ(found("<<日"), 6u);
  EXPECT_EQ(found("<"), std::nullopt);
  EXPECT_EQ(found(""), std::nullopt);
}

}  // namespace
}  // namespace quire::tokenize
