#include "grammar/structural_tag.h"

#include <string>
#include <vector>

#include <boost/json/parse.hpp>
#include <gtest/gtest.h>

#include "grammar/vocabulary.h"
#include "tests/grammar/follow.h"

namespace quire::grammar {
namespace {

struct TagCase {
  const char* name;
  const char* tag;
  std::vector<std::string> yes;
  std::vector<std::string> no;
};

void PrintTo(const TagCase& each, std::ostream* out) { *out << each.name; }

class StructuralTag : public testing::TestWithParam<TagCase> {};

TEST_P(StructuralTag, PermitsItsTextsAndNoOthers) {
  const auto grammar = structural_tag_grammar(boost::json::parse(GetParam().tag));
  ASSERT_TRUE(grammar) << grammar.error().pointer << ": " << grammar.error().message;
  QUIRE_NEEDS_XGRAMMAR();
  expect_texts(*grammar, GetParam().yes, GetParam().no);
}

const TagCase kTagCases[] = {
    {"Structures",
     R"({"type": "structural_tag", "structures": [
          {"begin": "<function=f>", "schema": {"$ref": "#/$defs/a", "$defs": {"a": {"type": "object",
            "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": false}}},
           "end": "</function>"},
          {"begin": "<function=g>", "schema": {"enum": [[]]}, "end": "</function>"}],
         "triggers": ["<function="]})",
     {"", "Any <function text.", R"(So <function=f>{"n": 3}</function> and <function=g>[]</function>.)"},
     {"<function=f>{}</function>", "<function=h>[]</function>", R"(<function=f>{"n": 3})",
      R"(<function=g>{"n": 3}</function>)"}},
    {"Sequence",
     R"({"format": {"type": "sequence", "elements": [
          {"type": "tag", "begin": "<think>", "content": {"type": "any_text"}, "end": "</think>"},
          {"type": "or", "elements": [{"type": "const_string", "value": "yes"},
                                      {"type": "regex", "pattern": "no+"}]},
          {"type": "grammar", "grammar": "root ::= x \"!\"\nx ::= [a-c] | \"(\" x \")\""}]}})",
     {"<think></think>yesa!", "<think>Hm < </thin </think>nooo((b))!"},
     {"yesa!", "<think>a</think></think>yesa!", "<think></think>yes", "<think></think>n(a!"}},
    {"Ends",
     R"({"format": {"type": "tag", "begin": "A", "content": {"type": "any_text", "excludes": ["X"]},
                    "end": ["B", "CC"]}})",
     {"AB", "A C CC", "A<>B"},
     {"A", "AXB", "ABB", "AC", "ABCC"}},
    {"Repeats",
     R"({"format": {"type": "sequence", "elements": [
          {"type": "optional", "content": {"type": "const_string", "value": "a"}},
          {"type": "plus", "content": {"type": "const_string", "value": "b"}},
          {"type": "star", "content": {"type": "const_string", "value": "c"}},
          {"type": "repeat", "min": 2, "max": 3, "content": {"type": "const_string", "value": "d"}},
          {"type": "repeat", "min": 1, "max": -1, "content": {"type": "const_string", "value": "e"}}]}})",
     {"abdde", "bbccdddeee"},
     {"add", "bde", "bdddde", "bdd", "aabdde"}},
    {"Triggered",
     R"({"format": {"type": "sequence", "elements": [
          {"type": "triggered_tags", "triggers": ["<a", "<b"], "at_least_one": true, "excludes": ["#"],
           "tags": [{"begin": "<a>", "content": {"type": "const_string", "value": "1"}, "end": ";"},
                    {"type": "tag", "begin": "<ax>", "content": {"type": "const_string", "value": "2"}, "end": ";"},
                    {"begin": "<b", "content": {"type": "json_schema", "json_schema": {"type": "integer"}},
                     "end": [";", "."]}]},
          {"type": "const_string", "value": "#"}]}})",
     {"<a>1;#", "<ax>2; any <b7. more#", "<b3;#"},
     {"#", "any <a>1;#", "<a>2;#", "<a>1; <c #x", "<a>1; <a#", "<b3#"}},
    {"StopAfterFirst",
     R"({"format": {"type": "triggered_tags", "triggers": ["<a"], "stop_after_first": true,
          "tags": [{"begin": "<a>", "content": {"type": "const_string", "value": "1"}, "end": ";"}]}})",
     {"", "text", "text<a>1;"},
     {"text<a>1; more", "<a>1;<a>1;", "<a"}},
    {"Separated",
     R"j({"format": {"type": "tags_with_separator", "separator": ", ", "at_least_one": true,
          "tags": [{"begin": "(", "content": {"type": "json_schema", "json_schema": true}, "end": ")"},
                   {"begin": "[", "content": {"type": "const_string", "value": "x"}, "end": "]"}]}})j",
     {"(1)", "[x], ({}), [x]"},
     {"", "(1),[x]", "(1), ", "x"}},
    {"SeparatedOnce",
     R"({"format": {"type": "tags_with_separator", "separator": ",", "stop_after_first": true,
          "tags": [{"begin": "[", "content": {"type": "const_string", "value": "x"}, "end": "]"}]}})",
     {"", "[x]"},
     {"[x],[x]"}},
    {"AnyText", R"({"format": {"type": "any_text"}})", {"", "a\n\xC3\xA9"}, {}},
};
INSTANTIATE_TEST_SUITE_P(Formats, StructuralTag, testing::ValuesIn(kTagCases),
                         [](const auto& each) { return each.param.name; });

TEST(StructuralTags, RefuseByPlaceWhatTheyCannotEnforce) {
  struct Refusal {
    const char* tag;
    const char* pointer;
    const char* why;
  };
  const Refusal cases[] = {
      {"[]", "", "must be an object"},
      {"{}", "", "needs 'format'"},
      {R"({"type": "json_schema", "format": {}})", "/type", "structural_tag"},
      {R"({"format": {"type": "any_text"}, "more": 1})", "/more", "not supported"},
      {R"({"format": {"type": "token", "token": 3}})", "/format/type", "'token' is not supported"},
      {R"({"format": {"type": "any_text", "max_tokens": 3}})", "/format/max_tokens", "not supported"},
      {R"({"format": {"type": "const_string", "value": ""}})", "/format/value", "empty"},
      {R"({"format": {"type": "json_schema", "json_schema": {"properties": {"a": {"not": {}}}}}})",
       "/format/json_schema/properties/a/not", "not"},
      {R"({"format": {"type": "json_schema", "style": "qwen_xml", "json_schema": {}}})", "/format/style",
       "json"},
      {R"j({"format": {"type": "regex", "pattern": "a(?=b)"}})j", "/format/pattern", "lookahead"},
      {R"({"format": {"type": "grammar", "grammar": "root ::= x"}})", "/format/grammar", "x"},
      {R"({"format": {"type": "sequence", "elements": [{"type": "any_text"},
           {"type": "const_string", "value": "a"}]}})",
       "/format/elements/0", "excludes"},
      {R"({"format": {"type": "star", "content": {"type": "any_text", "excludes": ["a"]}}})",
       "/format/content", "cannot be repeated"},
      {R"({"format": {"type": "repeat", "min": 3, "max": 2, "content": {"type": "const_string", "value": "a"}}})",
       "/format/max", "less than min"},
      {R"({"format": {"type": "triggered_tags", "triggers": ["<"], "tags": [
           {"begin": "[", "content": {"type": "any_text"}, "end": "]"}]}})",
       "/format/tags/0/begin", "exactly one"},
      {R"({"format": {"type": "triggered_tags", "triggers": ["<a"], "excludes": ["<"], "tags": [
           {"begin": "<a", "content": {"type": "any_text"}, "end": "]"}]}})",
       "/format/triggers", "cannot occur"},
      {R"({"structures": [{"begin": "a", "schema": {"contains": {}}, "end": "b"}], "triggers": ["a"]})",
       "/structures/0/schema/contains", "contains"},
  };
  for (const Refusal& each : cases) {
    const auto grammar = structural_tag_grammar(boost::json::parse(each.tag));
    ASSERT_FALSE(grammar) << each.tag;
    EXPECT_EQ(grammar.error().pointer, each.pointer) << each.tag << ": " << grammar.error().message;
    EXPECT_NE(grammar.error().message.find(each.why), std::string::npos) << grammar.error().message;
  }
  std::string many = R"({"format": {"type": "sequence", "elements": [)";
  for (size_t i = 0; i <= kMaxTagParts; ++i) many += R"({"type": "const_string", "value": "a"},)";
  many.back() = ']';
  EXPECT_FALSE(structural_tag_grammar(boost::json::parse(many + "}}")));
}

// A special token is no text: the tag's text cannot be hidden in one.
TEST(StructuralTags, FreeTextHasNoSpecialTokens) {
  QUIRE_NEEDS_XGRAMMAR();
  Vocabulary vocabulary = byte_vocabulary();
  vocabulary.tokens.emplace_back(kSpecialBytes);
  Compiler compiler(vocabulary, test_config());
  const auto made = compiler.compile(*structural_tag_grammar(boost::json::parse(
      R"({"format": {"type": "tag", "begin": "A", "content": {"type": "any_text"}, "end": "B"}})")));
  ASSERT_TRUE(made);
  const auto source = (*made)();
  source->accept('A');
  EXPECT_TRUE(allows(mask_of(*source), 'x'));
  EXPECT_FALSE(allows(mask_of(*source), 257));
}

}  // namespace
}  // namespace quire::grammar
