// What the grammars of tool calls permit, and what stays free around strict ones.
#include "serve/tool_grammar.h"

#include <string>
#include <vector>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "answer/format.h"
#include "answer/parser.h"
#include "base/json.h"
#include "grammar/marked_mask.h"
#include "tests/grammar/follow.h"
#include "tests/support/letter_tokenizer.h"

namespace quire::serve {
namespace {

using testing::HasSubstr;

json::object schema(std::string_view text) { return parse_json(text, "schema").as_object(); }

ToolWishes wishes() {
  ToolWishes out;
  out.tools = {
      {"add", schema(R"({"type": "object", "properties": {"a": {"type": "integer", "$ref": "#/$defs/n"}},
                         "required": ["a"], "$defs": {"n": {"minimum": 0, "maximum": 9}}})")},
      {"now", schema(R"({"type": "object", "properties": {}})")},
      {"say", schema(R"({"type": "object", "properties": {
          "text": {"type": "string"}, "tone": {"type": "string", "enum": ["low", "high"]},
          "loud": {"type": "boolean"}, "to": {"type": "array", "items": {"type": "string", "maxLength": 3}}},
          "required": ["text"]})")}};
  return out;
}

/// A call as the format's models write it; the arguments are JSON.
std::string call(const answer::ToolFormat& format, std::string_view name, std::string_view arguments) {
  if (!format.named[1].empty())
    return fmt::format("{}{}{}{}{}", format.named[0], name, format.named[1], arguments, format.named[2]);
  std::string out;
  switch (format.syntax) {
    case answer::CallSyntax::kXml:
      for (const auto& [key, value] : schema(arguments)) {
        const std::string text = value.is_string() ? std::string(value.get_string()) : json::serialize(value);
        out += fmt::format("<parameter={}>\n{}\n</parameter>\n", std::string_view(key), text);
      }
      return fmt::format("<function={}>\n{}</function>", name, out);
    case answer::CallSyntax::kPythonic:
      for (const auto& [key, value] : schema(arguments)) {
        out += fmt::format("{}{}={}", out.empty() ? "" : ", ", std::string_view(key), json::serialize(value));
      }
      return fmt::format("{}({})", name, out);
    default:
      return fmt::format(R"({{"name": "{}", "{}": {}}})", name, format.arguments_key, arguments);
  }
}

/// An answer that consists of these calls.
std::string answer_of(const answer::ToolFormat& format, const std::vector<std::string>& calls) {
  return fmt::format("{}{}{}", format.before, fmt::join(calls, format.separator), format.behind);
}

std::vector<answer::CallPiece> calls_in(const answer::ToolFormat& format, const std::string& text) {
  answer::AnswerFormat answers;
  answers.tools = &format;
  const answer::Tools tools = wishes().tools;
  answer::Parser parser(answers, tools);
  answer::Piece piece;
  parser.add(text, piece);
  parser.end(piece);
  EXPECT_EQ(piece.content, "");
  EXPECT_FALSE(parser.inside_call());
  return piece.calls;
}

TEST(ToolGrammar, PermitsTheCallsOfEveryFormatAndTheParserReadsThem) {
  QUIRE_NEEDS_XGRAMMAR();
  for (const answer::ToolFormat& format : answer::tool_formats()) {
    SCOPED_TRACE(format.name);
    const std::string add = call(format, "add", R"({"a": 7})");
    const std::string now = call(format, "now", "{}");
    const std::string say =
        call(format, "say", R"({"text": "<b>\"1\"</b>", "tone": "low", "loud": true, "to": ["a"]})");
    const std::string said = R"({"text":"<b>\"1\"</b>","tone":"low","loud":true,"to":["a"]})";
    const auto grammar = tool_grammar(wishes(), format, {}, false);
    ASSERT_TRUE(grammar) << grammar.error().message;
    const grammar::Follower follower(*grammar);
    const auto accepts = [&](const std::vector<std::string>& calls) {
      return follower.accepts(answer_of(format, calls));
    };
    EXPECT_TRUE(accepts({add})) << *grammar;
    EXPECT_TRUE(accepts({now, add, now})) << *grammar;
    EXPECT_TRUE(accepts({say})) << say << *grammar;
    EXPECT_TRUE(accepts({call(format, "say", R"({"text": "", "to": []})")})) << *grammar;
    EXPECT_FALSE(accepts({}));
    EXPECT_FALSE(follower.accepts("Hello"));
    EXPECT_FALSE(accepts({call(format, "add", R"({"a": 12})")}));
    EXPECT_FALSE(accepts({call(format, "add", "{}")}));
    EXPECT_FALSE(accepts({call(format, "now", R"({"a": 1})")}));
    EXPECT_FALSE(accepts({call(format, "sub", "{}")}));
    EXPECT_FALSE(accepts({call(format, "say", R"({"loud": true})")}));
    EXPECT_FALSE(accepts({call(format, "say", R"({"text": "", "tone": "loud"})")}));
    EXPECT_FALSE(accepts({call(format, "say", R"({"text": "", "to": ["long"]})")}));

    ToolWishes one = wishes();
    one.parallel = false;
    EXPECT_FALSE(
        grammar::Follower(*tool_grammar(one, format, {}, false)).accepts(answer_of(format, {now, now})));
    one.only = "now";
    const grammar::Follower only(*tool_grammar(one, format, {}, false));
    EXPECT_FALSE(only.accepts(answer_of(format, {add})));
    EXPECT_TRUE(only.accepts(answer_of(format, {now})));

    const auto calls = calls_in(format, answer_of(format, {add, say, now}));
    ASSERT_EQ(calls.size(), 3U);
    EXPECT_EQ(calls[0].name, "add");
    EXPECT_EQ(schema(calls[0].arguments), schema(R"({"a": 7})"));
    EXPECT_EQ(schema(calls[1].arguments), schema(said));
    EXPECT_EQ(calls[2].name, "now");
  }
}

TEST(ToolGrammar, LeavesTheArgumentsOfToolsFreeThatAreNotStrict) {
  QUIRE_NEEDS_XGRAMMAR();
  ToolWishes some = wishes();
  some.strict = {"add"};
  for (const answer::ToolFormat& format : answer::tool_formats()) {
    SCOPED_TRACE(format.name);
    const auto grammar = tool_grammar(some, format, {}, true);
    ASSERT_TRUE(grammar);
    const grammar::Follower follower(*grammar);
    const auto accepts = [&](std::string_view name, std::string_view arguments) {
      return follower.accepts(answer_of(format, {call(format, name, arguments)}));
    };
    EXPECT_TRUE(accepts("say", R"({"x": 1, "y": ["a", {"b": null}], "z": "it's"})")) << *grammar;
    EXPECT_TRUE(accepts("now", "{}"));
    EXPECT_TRUE(accepts("add", R"({"a": 7})"));
    EXPECT_FALSE(accepts("add", R"({"a": 12})"));
    EXPECT_FALSE(accepts("add", "{}"));
    EXPECT_FALSE(accepts("other", "{}"));
  }
  const auto& pythonic = *answer::find_tool_format("pythonic");
  EXPECT_TRUE(grammar::Follower(*tool_grammar(some, pythonic, {}, true))
                  .accepts("[say(a='it\\'s', b={'c': [True, None, -1.5e3]}), now()]"));
}

TEST(ToolGrammar, WritesAsJsonWhatAFormatCannotWriteOtherwise) {
  QUIRE_NEEDS_XGRAMMAR();
  ToolWishes odd;
  odd.tools["f"] = schema(R"({"properties": {"a b": {"type": "integer"}, "c>": {"const": "x"}},
                              "anyOf": [{"required": ["a b"]}, {"required": ["c>"]}]})");
  for (const char* name : {"qwen3_coder", "pythonic"}) {
    const answer::ToolFormat& format = *answer::find_tool_format(name);
    const std::string key(format.arguments_key);
    const grammar::Follower follower(*tool_grammar(odd, format, {}, false));
    EXPECT_TRUE(follower.accepts(answer_of(format, {R"({"name": "f", ")" + key + R"(": {"a b": 1}})"})));
    EXPECT_FALSE(follower.accepts(answer_of(format, {R"({"name": "f", ")" + key + R"(": {}})"})));
  }
}

TEST(ToolGrammar, NamesMarksThatAreTokens) {
  QUIRE_NEEDS_XGRAMMAR();
  grammar::Vocabulary vocabulary = grammar::byte_vocabulary();
  vocabulary.tokens.emplace_back(grammar::kSpecialBytes);
  constexpr TokenId kMark = 257;
  grammar::Compiler compiler(vocabulary, grammar::test_config());
  const answer::ToolFormat& format = *answer::find_tool_format("mistral");
  const auto made = compiler.compile(*tool_grammar(wishes(), format, {{"[TOOL_CALLS]", kMark}}, false));
  ASSERT_TRUE(made) << made.error().message;
  const auto source = (*made)();
  EXPECT_FALSE(grammar::allows(grammar::mask_of(*source), '['));
  EXPECT_TRUE(grammar::allows(grammar::mask_of(*source), kMark));
  source->accept(kMark);
  EXPECT_TRUE(source->accept_text(R"( [{"name": "say", "arguments": {"text": "a)"));
  EXPECT_FALSE(grammar::allows(grammar::mask_of(*source), kMark)) << "inside a text";
}

TEST(ToolGrammar, AnErrorHasThePlaceInTheToolsOwnSchema) {
  ToolWishes bad = wishes();
  bad.tools["zoo"] = schema(R"({"properties": {"a": {"items": {"not": {}}}}})");
  const auto grammar = tool_grammar(bad, *answer::find_tool_format("hermes"), {}, false);
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().param, "tools");
  EXPECT_THAT(grammar.error().message, HasSubstr("calls of zoo"));
  EXPECT_THAT(grammar.error().message, HasSubstr("'#/properties/a/items/not'"));
}

/// A token per byte, as in byte_vocabulary().
class ByteLetters final : public test::LetterTokenizer {
 public:
  ByteLetters() : LetterTokenizer(257) {}
  std::string token_bytes(TokenId id) const override {
    return id < 256 ? std::string(1, static_cast<char>(id)) : std::string();
  }
};

/// Whether a sequence may be this text, and end then.
bool permits(const engine::MakeMaskSource& make, std::string_view text) {
  const auto source = make();
  for (const char c : text) {
    const auto token = static_cast<TokenId>(static_cast<uint8_t>(c));
    if (!grammar::allows(grammar::mask_of(*source), token)) return false;
    source->accept(token);
  }
  return grammar::allows(grammar::mask_of(*source), grammar::kEnd);
}

TEST(StrictTools, AreEnforcedFromTheirMarksOnAndNothingElseIs) {
  QUIRE_NEEDS_XGRAMMAR();
  ToolWishes some = wishes();
  some.strict = {"add"};
  const ByteLetters tokenizer;
  for (const answer::ToolFormat& format : answer::tool_formats()) {
    SCOPED_TRACE(format.name);
    const auto grammar = strict_tool_grammar(some, format, {});
    ASSERT_TRUE(grammar);
    auto inside = grammar::byte_compiler().compile(*grammar);
    ASSERT_TRUE(inside) << inside.error().message << *grammar;
    const auto make = grammar::restrict_after(certain_marks(some, format), *inside, tokenizer);
    const std::string add = call(format, "add", R"({"a": 7})");
    const std::string free = call(format, "say", R"({"x": "any", "y": []})");
    const std::string now = call(format, "now", "{}");
    const bool bare = format.bare != 0;
    const std::string before = bare ? " \n" : "So: ";
    EXPECT_TRUE(permits(make, "Hello <tool <<tool_ {\"name\": 3} [add(a=12)] {"));
    EXPECT_TRUE(permits(make, before + answer_of(format, {add}))) << *grammar;
    EXPECT_TRUE(permits(make, before + answer_of(format, {free}) + " and so on"));
    EXPECT_TRUE(permits(make, answer_of(format, {now, add})));
    EXPECT_FALSE(permits(make, before + answer_of(format, {call(format, "add", R"({"a": 12})")})));
    EXPECT_FALSE(permits(make, answer_of(format, {call(format, "add", "{}")})));
    for (const answer::CallMark& mark : format.certain) {
      if (mark.at_start || mark.kept > 0) continue;
      std::string calls = answer_of(format, {add});
      for (const std::string_view open : format.opens) {
        if (format.before.starts_with(open)) calls.erase(0, open.size());
      }
      EXPECT_TRUE(permits(make, "Then " + mark.text + calls));
      EXPECT_FALSE(permits(make, "Then " + mark.text)) << "it cannot end inside";
      EXPECT_FALSE(permits(make, "Then " + mark.text + "Hello"));
    }
  }
}

}  // namespace
}  // namespace quire::serve
