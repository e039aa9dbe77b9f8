// What the grammars of tool calls permit, and what stays free around strict ones.
#include <string>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "answer/format.h"
#include "answer/parser.h"
#include "base/json.h"
#include "grammar/marked_mask.h"
#include "serve/tool_fields.h"
#include "tests/grammar/follow.h"
#include "tests/support/letter_tokenizer.h"

namespace quire::serve {
namespace {

using testing::HasSubstr;

json::object schema(std::string_view text) { return parse_json(text, "schema").as_object(); }

ToolWishes wishes() {
  ToolWishes out;
  out.tools = {{"add", schema(R"({"type": "object", "properties": {"a": {"$ref": "#/$defs/n"}},
                    "required": ["a"], "$defs": {"n": {"type": "integer", "minimum": 0, "maximum": 9}}})")},
               {"now", schema(R"({"type": "object", "properties": {}})")}};
  return out;
}

std::string call(std::string_view name, std::string_view arguments, std::string_view key) {
  return fmt::format(R"({{"name": "{}", "{}": {}}})", name, key, arguments);
}

TEST(ToolGrammar, PermitsTheCallsOfEveryFormatAndTheParserReadsThem) {
  QUIRE_NEEDS_XGRAMMAR();
  for (const answer::ToolFormat& format : answer::tool_formats()) {
    SCOPED_TRACE(format.name);
    const auto text_of = [&](const std::vector<std::string>& calls) {
      std::string text(format.before);
      for (size_t i = 0; i < calls.size(); ++i)
        text += std::string(i == 0 ? "" : format.separator) + calls[i];
      return text + std::string(format.behind);
    };
    const std::string add = call("add", R"({"a": 7})", format.arguments_key);
    const std::string now = call("now", "{}", format.arguments_key);
    const auto grammar = tool_grammar(wishes(), format);
    ASSERT_TRUE(grammar) << grammar.error().message;
    const grammar::Follower follower(*grammar);
    EXPECT_TRUE(follower.accepts(text_of({add})));
    EXPECT_TRUE(follower.accepts(text_of({now, add, now})));
    EXPECT_FALSE(follower.accepts(text_of({})));
    EXPECT_FALSE(follower.accepts("Hello"));
    EXPECT_FALSE(follower.accepts(text_of({call("add", R"({"a": 12})", format.arguments_key)})));
    EXPECT_FALSE(follower.accepts(text_of({call("add", "{}", format.arguments_key)})));
    EXPECT_FALSE(follower.accepts(text_of({call("now", R"({"a": 1})", format.arguments_key)})));
    EXPECT_FALSE(follower.accepts(text_of({call("sub", "{}", format.arguments_key)})));

    ToolWishes one = wishes();
    one.parallel = false;
    EXPECT_FALSE(grammar::Follower(*tool_grammar(one, format)).accepts(text_of({now, now})));
    one.only = "now";
    EXPECT_FALSE(grammar::Follower(*tool_grammar(one, format)).accepts(text_of({add})));
    EXPECT_TRUE(grammar::Follower(*tool_grammar(one, format)).accepts(text_of({now})));

    answer::AnswerFormat answers;
    answers.tools = &format;
    const answer::Tools tools = wishes().tools;
    answer::Parser parser(answers, tools);
    answer::Piece piece;
    parser.add(text_of({add, now}), piece);
    parser.end(piece);
    ASSERT_EQ(piece.calls.size(), 2U);
    EXPECT_EQ(piece.calls[0].name, "add");
    EXPECT_EQ(piece.calls[0].arguments, R"({"a": 7})");
    EXPECT_EQ(piece.calls[1].name, "now");
    EXPECT_EQ(piece.content, "");
    EXPECT_FALSE(parser.inside_call());
  }
}

TEST(ToolGrammar, AnErrorHasThePlaceInTheToolsOwnSchema) {
  ToolWishes bad = wishes();
  bad.tools["zoo"] = schema(R"({"properties": {"a": {"items": {"not": {}}}}})");
  const auto grammar = tool_grammar(bad, *answer::find_tool_format("hermes"));
  ASSERT_FALSE(grammar);
  EXPECT_EQ(grammar.error().param, "tools");
  EXPECT_THAT(grammar.error().message, HasSubstr("calls of zoo"));
  EXPECT_THAT(grammar.error().message, HasSubstr("'#/properties/a/items/not'"));
}

/// A token per byte, as in byte_vocabulary().
class ByteTokenizer final : public test::LetterTokenizer {
 public:
  ByteTokenizer() : LetterTokenizer(257) {}
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

TEST(StrictTools, AreEnforcedFromTheMarkOnAndNothingElseIs) {
  QUIRE_NEEDS_XGRAMMAR();
  ToolWishes some = wishes();
  some.strict = {"add"};
  some.tools["free"] = schema(R"({"type": "object", "properties": {"x": {"type": "integer"}}})");
  const ByteTokenizer tokenizer;
  for (const char* name : {"hermes", "qwen3_coder", "mistral", "deepseek"}) {
    SCOPED_TRACE(name);
    const answer::ToolFormat& format = *answer::find_tool_format(name);
    const auto grammar = strict_tool_grammar(some, format);
    ASSERT_TRUE(grammar && !grammar->empty());
    auto inside = grammar::byte_compiler().compile(*grammar);
    ASSERT_TRUE(inside) << inside.error().message << *grammar;
    const auto make = grammar::restrict_after(std::string(format.opens.front()), *inside, tokenizer);
    const auto calls = [&](std::string_view text) {
      return std::string(format.before) + std::string(text) + std::string(format.behind);
    };
    EXPECT_TRUE(permits(make, "Hello <tool <<tool_ {\"name\": 3}"));
    EXPECT_TRUE(permits(make, "So: " + calls(R"({"name": "add", "arguments": {"a": 7}})")));
    EXPECT_TRUE(
        permits(make, calls(R"({"name": "free", "arguments": {"x": "any", "y": []}})") + " and so on"));
    EXPECT_TRUE(permits(make, calls(R"({"name": "now", "arguments": {}})") +
                                  calls(R"({"name": "add", "arguments": {"a": 1}})")));
    EXPECT_FALSE(permits(make, calls(R"({"name": "add", "arguments": {"a": 12}})")));
    EXPECT_FALSE(permits(make, calls(R"({"name": "other", "arguments": {}})")));
    EXPECT_FALSE(permits(make, std::string(format.before))) << "it cannot end inside";
    EXPECT_FALSE(permits(
        make, calls(R"({"name": "now", "arguments": {}})") + calls(R"({"name": "add", "arguments": {}})")));
  }
  for (const char* name : {"llama3_json", "pythonic", "granite", "phi4"}) {
    EXPECT_EQ(strict_tool_grammar(some, *answer::find_tool_format(name)), std::string()) << name;
  }
}

}  // namespace
}  // namespace quire::serve
