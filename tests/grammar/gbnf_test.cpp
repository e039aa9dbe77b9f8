#include "grammar/gbnf.h"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/grammar/follow.h"

namespace quire::grammar {
namespace {

TEST(Gbnf, ReadsLlamaCppsFormat) {
  struct Case {
    const char* grammar;
    std::vector<std::string> yes;
    std::vector<std::string> no;
  };
  const Case cases[] = {
      {"root ::= \"a\" [0-9]+ # a comment\n", {"a1", "a12"}, {"a", "b1"}},
      {"root ::= (\"yes\" | \"no\")\n  (\" \" item){0,2}\nitem ::= [^ \\]\\x41]\n",
       {"yes", "no x y"},
       {"no A", "yes x y z", "no ]"}},
      {"root ::= .{2,3}", {"ab", "\xC3\xA9\n!"}, {"a", "abcd"}},
      {"root ::= \"(\" root \")\" | \"x\"", {"x", "((x))"}, {"(x", "()"}},
      {"root ::= expr\nexpr ::= term (\"+\" term)*\nterm ::= [0-9]+ | \"(\" expr \")\"",
       {"1", "1+(2+3)+4"},
       {"1+", "(1"}},
      {"root ::= my-rule_2?\nmy-rule_2 ::= \"\\u00e9\\x41B\"",
       {"",
        "\xC3\xA9"
        "AB"},
       {"A"}},
      {"root ::= \"\\\"\" [^\"\\\\\\n]* \"\\\"\"", {"\"a b\"", "\"\""}, {"\"\"\"", "a"}},
      {"root ::= \"a\"{3}\n", {"aaa"}, {"aa", "aaaa"}},
      {"root ::= \"a\" |\n \"b\"\n\n", {"a", "b"}, {""}},
  };
  for (const Case& each : cases) {
    const auto grammar = gbnf_grammar(each.grammar);
    ASSERT_TRUE(grammar) << each.grammar << ": " << grammar.error();
    if (can_compile()) expect_texts(*grammar, each.yes, each.no);
  }
}

TEST(Gbnf, SaysWhatIsWrongAndInWhichLine) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "'root' is missing"},
      {"a ::= \"x\"", "'root' is missing"},
      {"root ::= a", "uses 'a', which is not defined"},
      {"root ::= root", "no text of the rule 'root' has an end"},
      {"root ::= \"a\" root", "no text of the rule 'root' has an end"},
      {"root ::= \"a\nb ::= \"c\"", "in line"},
      {"root ::= [a", "too early, in line 1"},
      {"root ::= \"a\"\nroot ::= \"b\"", "defined twice, in line 2"},
      {"root ::= (\"a\"", "'(' without its ')'"},
      {"root ::= <think>", "tokens"},
      {"root ::= \"\\q\"", "escape \\q"},
      {"root ::= \"a\"{2,1}", "upper bound"},
      {"root ::= \"a\"{99999}", "more than 10000"},
      {"root = \"a\"", "must begin with"},
      {"root ::= []", "no text"},
  };
  for (const auto& [text, why] : cases) {
    const auto grammar = gbnf_grammar(text);
    ASSERT_FALSE(grammar) << text;
    EXPECT_NE(grammar.error().find(why), std::string::npos) << text << ": " << grammar.error();
  }
}

TEST(Choice, OneOfTheTextsAndNothingElse) {
  QUIRE_NEEDS_XGRAMMAR();
  const Follower follower(
      choice_grammar(std::array<std::string, 4>{"yes", "no", "no way", "\"[a]\" \\ \xC3\xA9\n"}));
  for (const char* good : {"yes", "no", "no way", "\"[a]\" \\ \xC3\xA9\n"})
    EXPECT_TRUE(follower.accepts(good)) << good;
  for (const char* bad : {"", "y", "yesno", "no ", "[a]"}) EXPECT_FALSE(follower.accepts(bad)) << bad;
}

}  // namespace
}  // namespace quire::grammar
