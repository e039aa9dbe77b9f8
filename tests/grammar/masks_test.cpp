// Mask sources that consist of others, and what they look for in an answer.
#include <algorithm>
#include <array>
#include <random>
#include <string>

#include <gtest/gtest.h>

#include "grammar/ebnf.h"
#include "grammar/either_mask.h"
#include "grammar/expression.h"
#include "grammar/gbnf.h"
#include "grammar/mark_finder.h"
#include "tests/grammar/follow.h"

namespace quire::grammar {
namespace {

engine::MakeMaskSource compiled(std::string_view gbnf) {
  return *byte_compiler().compile(*gbnf_grammar(gbnf));
}

/// How much of the text is permitted; one more if the answer may end behind it.
size_t permitted(const engine::MakeMaskSource& make, std::string_view text) {
  const auto source = make();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto token = static_cast<TokenId>(static_cast<unsigned char>(text[i]));
    if (!allows(mask_of(*source), token)) return i;
    source->accept(token);
  }
  return text.size() + (allows(mask_of(*source), kEnd) ? 1 : 0);
}

TEST(Either, PermitsWhatOneOfTheTwoDoes) {
  QUIRE_NEEDS_XGRAMMAR();
  const auto make = either(compiled(R"(root ::= "abc" | "ax")"), compiled(R"(root ::= "ab" [0-9]+)"));
  EXPECT_EQ(permitted(make, "abc"), 4U);
  EXPECT_EQ(permitted(make, "ax"), 3U);
  EXPECT_EQ(permitted(make, "ab12"), 5U);
  EXPECT_EQ(permitted(make, "ab1c"), 3U) << "the first has ended";
  EXPECT_EQ(permitted(make, "ab"), 2U);
  EXPECT_EQ(permitted(make, "b"), 0U);
  const auto source = make();
  EXPECT_TRUE(source->accept_text("ab"));
  EXPECT_FALSE(source->complete());
  EXPECT_TRUE(source->accept_text("7"));
  EXPECT_TRUE(source->complete());
  EXPECT_FALSE(source->accept_text("c"));
}

TEST(TextWithout, MatchesEveryTextThatHoldsNoneOfTheMarks) {
  constexpr std::array<std::string_view, 3> kMarks = {"<ab", "<aa>", "<b"};
  const Expression free = text_without(kMarks);
  std::mt19937 rng(7);
  for (int round = 0; round < 4000; ++round) {
    std::string text;
    for (size_t size = rng() % 12; text.size() < size;) text += "<<ab>x"[rng() % 6];
    const bool holds = std::ranges::any_of(
        kMarks, [&](std::string_view mark) { return text.find(mark) != std::string::npos; });
    ASSERT_EQ(matches(free, text), !holds) << text;
  }
  QUIRE_NEEDS_XGRAMMAR();
  constexpr std::array<std::string_view, 2> kEnds = {"</parameter>", "</function>"};
  const Follower follower("root ::= " + body(text_without(kEnds)) + " \"</parameter>\"\n");
  for (const char* text : {"", "<", "</param", "<</parameter", "</p</f", "a</parametes>\n</functio \xC3\xA9"})
    EXPECT_TRUE(follower.accepts(text + std::string("</parameter>"))) << text;
  for (const char* text : {"</parameter>", "</function>", "a</parameter></parameter>b"})
    EXPECT_FALSE(follower.accepts(text + std::string("</parameter>"))) << text;
}

TEST(StartFinder, FindsAMarkAtTheBeginningWhateverItsWhiteSpace) {
  const auto find = [](std::string_view text, size_t piece) {
    StartFinder finder("{\"a\":");
    std::optional<std::string> found;
    size_t at = 0;
    for (; at < text.size() && !found; at += piece) found = finder.take(text.substr(at, piece));
    return found ? *found + "|" + std::string(text.substr(std::min(at, text.size()))) : "none";
  };
  for (const size_t piece : {1U, 2U, 3U, 100U}) {
    const std::string found = find(" \n{ \"a\"  : 1}", piece);
    EXPECT_EQ(found.substr(0, found.find('|')) + found.substr(found.find('|') + 1), "{ \"a\"  : 1}") << piece;
    EXPECT_EQ(find("x{\"a\":", piece), "none");
    EXPECT_EQ(find("{\"b\":{\"a\":", piece), "none");
    EXPECT_EQ(find("{" + std::string(300, ' ') + "\"a\":", piece), "none");
  }
}

}  // namespace
}  // namespace quire::grammar
