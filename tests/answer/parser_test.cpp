// Each format's calls, however the text is cut; broken ones; reasoning.
#include "answer/parser.h"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/json.h"
#include "tests/support/sanitized.h"

namespace quire::answer {
namespace {

struct Call {
  std::string name;
  std::string arguments;
  bool operator==(const Call&) const = default;
};
void PrintTo(const Call& call, std::ostream* out) { *out << call.name << "(" << call.arguments << ")"; }

struct Said {
  std::string reasoning;
  std::string content;
  std::vector<Call> calls;
  bool cut = false;  // in the middle of a call
  bool operator==(const Said&) const = default;
};
void PrintTo(const Said& said, std::ostream* out) {
  *out << "reasoning '" << said.reasoning << "' content '" << said.content << "' calls "
       << testing::PrintToString(said.calls) << (said.cut ? " cut" : "");
}

const Tools& tools() {
  static const Tools made = {
      {"get_weather", parse_json(R"({"type": "object", "properties": {"city": {"type": "string"},
          "days": {"type": "integer"}, "exact": {"type": "boolean"}, "tags": {"type": "array"}}})",
                                 "tool")
                          .as_object()},
      {"add",
       parse_json(R"({"type": "object", "properties": {"a": {"type": "number"}}})", "tool").as_object()},
      {"now", json::object()}};
  return made;
}

AnswerFormat format_of(std::string_view tool_format, std::string_view reasoning = "") {
  AnswerFormat out;
  out.tools = find_tool_format(tool_format);
  if (!reasoning.empty()) out.reasoning = find_reasoning_format(reasoning);
  return out;
}

Said parse(const AnswerFormat& format, const std::vector<std::string_view>& pieces) {
  Parser parser(format, tools());
  Said said;
  const auto take = [&](const Piece& piece) {
    said.reasoning += piece.reasoning;
    said.content += piece.content;
    for (const CallPiece& call : piece.calls) {
      EXPECT_EQ(call.name.empty(), call.call < said.calls.size());
      if (call.call == said.calls.size()) said.calls.push_back({call.name, ""});
      said.calls.at(call.call).arguments += call.arguments;
    }
  };
  for (const std::string_view text : pieces) {
    Piece piece;
    parser.add(text, piece);
    take(piece);
  }
  Piece piece;
  parser.end(piece);
  take(piece);
  said.cut = parser.inside_call();
  EXPECT_EQ(parser.calls(), said.calls.size());
  return said;
}

Said parse(const AnswerFormat& format, std::string_view text) {
  return parse(format, std::vector<std::string_view>{text});
}

/// The same whole, in two pieces cut anywhere, and byte by byte.
Said parse_cut(const AnswerFormat& format, const std::string& text) {
  const Said whole = parse(format, text);
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(parse(format, {std::string_view(text).substr(0, i), std::string_view(text).substr(i)}), whole)
        << "cut at " << i;
    bytes.push_back(std::string_view(text).substr(i, 1));
  }
  EXPECT_EQ(parse(format, bytes), whole) << "byte by byte";
  return whole;
}

struct Example {
  std::string format;
  std::string text;
  Said said;
};

const std::vector<Example>& examples() {
  static const Call paris{"get_weather", R"({"city": "Paris"})"};
  static const Call now{"now", "{}"};
  static const Call list{"now", "[1, 2]"};
  static const Call number{"now", "5"};
  static const std::vector<Example> made = {
      {"hermes",
       "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Paris\"}}\n</tool_call>",
       {"", "", {paris}}},
      {"hermes",
       "<tool_call>{\"name\": \"now\", \"arguments\": null}</tool_call>"
       "<tool_call>{\"name\": \"now\", \"arguments\": [1, 2]}</tool_call>"
       "<tool_call>{\"arguments\": 5, \"name\": \"now\"}</tool_call>",
       {"", "", {now, list, number}}},
      {"hermes",
       "I look.\n<tool_call>{\"arguments\": {\"city\": \"Paris\"}, \"name\": \"get_weather\"}</tool_call>\n"
       "<tool_call>\n{\"name\": \"now\"}\n</tool_call>\n",
       {"", "I look.", {paris, now}}},
      {"hermes",
       R"(<tool_call>{"name":"add","arguments":"{\"a\": 1}"}</tool_call> and so on {"a"} </tool_call>)",
       {"", " and so on {\"a\"} </tool_call>", {{"add", "{\"a\": 1}"}}}},
      {"hermes",
       R"(<tool_call>{"name":"add","arguments":{"s":"}\"]{","l":[{"x":[]}]}}</tool_call>)",
       {"", "", {{"add", R"({"s":"}\"]{","l":[{"x":[]}]})"}}}},
      {"hermes",
       R"(<tool_call>{"id": "x", "type":"function","function":{"name":"now","arguments":{}}}</tool_call>)",
       {"", "", {now}}},
      {"qwen3_coder",
       "Let me see.\n<tool_call>\n<function=get_weather>\n<parameter=city>\nParis\n</parameter>\n"
       "<parameter=days>\n3\n</parameter>\n<parameter=exact>\nTrue\n</parameter>\n<parameter=tags>\n[\"a\", "
       "1]\n"
       "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=now>\n</function>\n</tool_call>",
       {"",
        "Let me see.",
        {{"get_weather", R"({"city": "Paris", "days": 3, "exact": true, "tags": ["a",1]})"}, now}}},
      {"qwen3_coder",
       "<function=get_weather><parameter=city>a < b > c\n<x></parameter><parameter=days>many</function>",
       {"", "", {{"get_weather", R"({"city": "a < b > c\n<x>", "days": "many"})"}}}},
      {"qwen3_coder", "<tool_call>{\"name\": \"now\", \"arguments\": {}}</tool_call>", {"", "", {now}}},
      {"llama3_json", R"({"name": "get_weather", "parameters": {"city": "Paris"}})", {"", "", {paris}}},
      {"llama3_json",
       R"( <|python_tag|>{"name": "now", "parameters": {}}; {"name": "now", "parameters": null})",
       {"", "", {now, now}}},
      {"llama3_json", R"({"city": "Paris"} is it)", {"", R"({"city": "Paris"} is it)", {}}},
      {"llama3_json",
       R"(So {"name": "now", "parameters": {}})",
       {"", R"(So {"name": "now", "parameters": {}})", {}}},
      {"pythonic",
       "[get_weather(city='Paris', days=3, tags=['a', (1, 2.5), {'k': None}]), now()]",
       {"",
        "",
        {{"get_weather", R"({"city": "Paris", "days": 3, "tags": ["a",[1,2.5E0],{"k":null}]})"}, now}}},
      {"pythonic",
       "<|python_start|>[get_weather(city=\"a, b) \\\"c\\\" \\u00e9\", exact=False)]<|python_end|>",
       {"", "", {{"get_weather", R"({"city": "a, b) \"c\" é", "exact": false})"}}}},
      {"pythonic", "[1, 2, 3] is a list", {"", "[1, 2, 3] is a list", {}}},
      {"mistral",
       R"([TOOL_CALLS] [{"name": "get_weather", "arguments": {"city": "Paris"}}, {"name": "now", "arguments": {}}])",
       {"", "", {paris, now}}},
      {"mistral",
       R"([TOOL_CALLS]get_weather{"city": "Paris"}[TOOL_CALLS]now[ARGS]{})",
       {"", "", {paris, now}}},
      {"mistral", R"(Well[TOOL_CALLS]now[CALL_ID]abc123XYZ[ARGS]{})", {"", "Well", {now}}},
      {"granite",
       R"(<|tool_call|>[{"name": "get_weather", "arguments": {"city": "Paris"}}])",
       {"", "", {paris}}},
      {"granite",
       R"(<tool_call>[{"arguments": {"city": "Paris"}, "name": "get_weather"}])",
       {"", "", {paris}}},
      {"phi4", R"(functools[{"name": "get_weather", "arguments": {"city": "Paris"}}])", {"", "", {paris}}},
      {"phi4",
       R"(<|tool_call|>[{"type":"function","function":{"name":"now","arguments":{}}}]<|/tool_call|>)",
       {"", "", {now}}},
      {"deepseek",
       "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
       "\"Paris\"}"
       "\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>now\n```json\n{}\n```"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "", {paris, now}}},
      {"deepseek",
       "So.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Paris\"}"
       "<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
       {"", "So.", {paris}}},
  };
  return made;
}

TEST(ToolCalls, AreReadInEveryFormatHoweverTheTextIsCut) {
  for (const Example& each : examples()) {
    SCOPED_TRACE(each.format + ": " + each.text);
    ASSERT_NE(find_tool_format(each.format), nullptr);
    EXPECT_EQ(parse_cut(format_of(each.format), each.text), each.said);
  }
}

/// Truncated anywhere, a text tells a beginning of what the whole one tells, or is content.
TEST(ToolCalls, ThatBreakOffAreTextOrEndAsTheyAre) {
  for (const Example& each : examples()) {
    for (size_t size = 0; size < each.text.size(); size += test::kSanitized ? 3 : 1) {
      SCOPED_TRACE(each.format + ": " + each.text.substr(0, size));
      const Said said = parse_cut(format_of(each.format), each.text.substr(0, size));
      ASSERT_LE(said.calls.size(), each.said.calls.size());
      for (size_t i = 0; i < said.calls.size(); ++i) {
        EXPECT_EQ(said.calls[i].name, each.said.calls[i].name);
        const bool last = i + 1 == said.calls.size();
        if (last && said.cut) {
          EXPECT_TRUE(each.said.calls[i].arguments.starts_with(said.calls[i].arguments));
        } else {
          EXPECT_EQ(said.calls[i].arguments, each.said.calls[i].arguments);
        }
      }
      if (said.calls.empty()) {
        EXPECT_EQ(said.content, each.text.substr(0, size));
      }
      if (!said.cut) continue;
      EXPECT_EQ(said.content, each.said.content.substr(0, said.content.size()));
    }
  }
}

TEST(ToolCalls, OfToolsThatThereAreNotAreText) {
  for (const std::string format : {"hermes", "mistral", "granite", "qwen3_coder"}) {
    const std::string open(find_tool_format(format)->opens[0]);
    for (const std::string name : {"other", "get_weathe", "get_weather2", "", "\\n", "now\\\"", "Now"}) {
      const std::string text = open + "{\"name\": \"" + name + "\", \"arguments\": {}} end";
      EXPECT_EQ(parse_cut(format_of(format), text), (Said{"", text, {}})) << text;
    }
  }
  const std::string xml =
      "<tool_call>\n<function=other>\n<parameter=a>\n1\n</parameter>\n</function>\n</tool_call>";
  EXPECT_EQ(parse_cut(format_of("qwen3_coder"), xml), (Said{"", xml, {}}));
  EXPECT_EQ(parse_cut(format_of("pythonic"), "[other(a=1)]"), (Said{"", "[other(a=1)]", {}}));
  // A false beginning does not hide a true one.
  EXPECT_EQ(parse_cut(format_of("hermes"), "<tool_call>{<tool_call>{\"name\":\"now\"}</tool_call>"),
            (Said{"", "<tool_call>{", {{"now", "{}"}}}));
  EXPECT_EQ(parse_cut(format_of("hermes"), "<tool_<tool_call> no"), (Said{"", "<tool_<tool_call> no", {}}));
}

TEST(ToolCalls, ThatAreNotWellFormedAreBounded) {
  const std::string deep = "<tool_call>{\"name\":\"add\",\"arguments\":" + std::string(100'000, '[');
  const Said said = parse(format_of("hermes"), deep);
  EXPECT_TRUE(said.cut);
  EXPECT_EQ(said.calls.size(), 1U);
  const std::string garbage = "<tool_call>{\"name\":\"add\",\"arguments\":{}, oops} more";
  EXPECT_EQ(parse_cut(format_of("hermes"), garbage), (Said{"", "", {{"add", "{}"}}, true}));
  const std::string nested = "[add(a=" + std::string(100'000, '[') + ")]";
  EXPECT_EQ(parse(format_of("pythonic"), nested).calls.size(), 1U);
  // White space without end is content, not memory.
  Parser parser(format_of("hermes"), tools());
  size_t told = 0;
  for (int i = 0; i < 100'000; ++i) {
    Piece piece;
    parser.add("\n", piece);
    told += piece.content.size();
  }
  EXPECT_GT(told, 99'000U);
}

TEST(Reasoning, IsDividedFromContentAndCalls) {
  const AnswerFormat think = format_of("hermes", "think");
  EXPECT_EQ(parse_cut(think, "<think>\nHm. <b> \n</think>\n\nYes."), (Said{"Hm. <b>", "Yes.", {}}));
  EXPECT_EQ(parse_cut(think, "\n <think></think>Yes."), (Said{"", "Yes.", {}}));
  EXPECT_EQ(parse_cut(think, "Yes <think>no</think>"), (Said{"", "Yes <think>no</think>", {}}));
  EXPECT_EQ(parse_cut(think, "<think>It ends </thi"), (Said{"It ends </thi", "", {}}));
  EXPECT_EQ(parse_cut(think, "<thinker"), (Said{"", "<thinker", {}}));
  EXPECT_EQ(parse_cut(think, "<think>a <tool_call> is</think>\n<tool_call>{\"name\": \"now\"}</tool_call>"),
            (Said{"a <tool_call> is", "", {{"now", "{}"}}}));
  AnswerFormat begun = format_of("hermes", "think");
  begun.begins_in_reasoning = true;
  EXPECT_EQ(parse_cut(begun, "\nHm.</think>Yes."), (Said{"Hm.", "Yes.", {}}));
  EXPECT_EQ(parse_cut(format_of("mistral", "mistral"), "[THINK]x[/THINK]y"), (Said{"x", "y", {}}));
  EXPECT_EQ(
      parse_cut(format_of("granite", "granite"), "Here is my thought process: a\nHere is my response: b"),
      (Said{"a", "b", {}}));
}

TEST(Formats, AreKnownByTheirTemplates) {
  EXPECT_EQ(tool_format_of("{{ messages }}"), nullptr);
  EXPECT_EQ(tool_format_of("... <tool_call>\n<function=example>\n<parameter=a>")->name, "qwen3_coder");
  EXPECT_EQ(tool_format_of("within <tool_call></tool_call> XML tags")->name, "hermes");
  EXPECT_EQ(tool_format_of("<|start_header_id|> {\"name\": f, \"parameters\": d}")->name, "llama3_json");
  EXPECT_EQ(tool_format_of("'[TOOL_CALLS] ['")->name, "mistral");
  EXPECT_EQ(tool_format_of("'[TOOL_CALLS]' + name + '[ARGS]'")->name, "mistral_args");
  EXPECT_EQ(tool_format_of("<｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json")->name, "deepseek");
  EXPECT_EQ(tool_format_of("<｜tool▁call▁begin｜>f<｜tool▁sep｜>{}")->name, "deepseek_v31");
  EXPECT_EQ(reasoning_format_of("a </think> b")->name, "think");
  EXPECT_EQ(reasoning_format_of("none"), nullptr);
  EXPECT_EQ(find_tool_format("nope"), nullptr);
  for (const ToolFormat& format : tool_formats()) {
    std::string words;
    for (const std::string_view word : format.words) words += std::string(word) + "\n";
    EXPECT_EQ(tool_format_of(words)->name, format.name);
  }
}

TEST(Parser, WithOneCallWhatFollowsItIsLeftOut) {
  AnswerFormat format = format_of("hermes");
  format.one_call = true;
  EXPECT_EQ(
      parse_cut(
          format,
          R"(I look. <tool_call>{"name":"now"}</tool_call><tool_call>{"name":"now"}</tool_call> Done.)"),
      (Said{"", "I look.", {{"now", "{}"}}}));
  EXPECT_EQ(parse_cut(format, "No call."), (Said{"", "No call.", {}}));
  format = format_of("pythonic");
  format.one_call = true;
  EXPECT_EQ(parse_cut(format, "[now(), now()]"), (Said{"", "", {{"now", "{}"}}}));
}

std::string arguments_of(const AnswerFormat& format, const Tools& tools, std::string_view text) {
  Parser parser(format, tools);
  Piece piece;
  parser.add(text, piece);
  parser.end(piece);
  std::string out;
  for (const CallPiece& call : piece.calls) out += call.arguments;
  return out;
}

TEST(Parser, LiteralsOfPythonBecomeJson) {
  const std::pair<const char*, const char*> cases[] = {
      {"(1)", "1"},
      {"(1,)", "[1]"},
      {"(1, 'a')", R"([1,"a"])"},
      {R"("a" 'b')", R"("ab")"},
      {R"(["a" "b", "c"])", R"(["ab","c"])"},
      {"1e400", R"("1e400")"},
      {"[1, 1e999]", R"("[1, 1e999]")"},
      {"12345678901234567890123", "12345678901234567890123"},
      {"-9223372036854775809", "-9223372036854775809"},
      {"9223372036854775807", "9223372036854775807"},
      {"True", "true"},
      {"{'k': None}", R"({"k":null})"},
  };
  for (const auto& [literal, json] : cases) {
    EXPECT_EQ(arguments_of(format_of("pythonic"), tools(), "[add(a=" + std::string(literal) + ")]"),
              "{\"a\": " + std::string(json) + "}")
        << literal;
  }
}

TEST(Parser, XmlValuesAreOfATypeThatTheSchemaPermits) {
  const Tools own = {{"f", parse_json(R"({"$defs": {"o": {"type": "object"}}, "properties": {
      "optional": {"anyOf": [{"type": "string"}, {"type": "null"}]}, "list": {"type": ["string", "null"]},
      "ref": {"$ref": "#/$defs/o"}, "loop": {"$ref": "#/$defs/no"}, "enum": {"enum": [1, 2]}, "const": {"const": "1"},
      "either": {"oneOf": [{"type": "integer"}, {"type": "boolean"}]}, "object": {"type": "object"},
      "number": {"type": "number"}, "free": {}, "mixed": {"enum": [1, "a"]}}})",
                                      "tool")
                               .as_object()}};
  struct Case {
    const char* name;
    const char* value;
    const char* json;
  };
  const Case cases[] = {
      {"optional", "12345", R"("12345")"},
      {"optional", "null", "null"},
      {"optional", "None", "null"},
      {"list", "12345", R"("12345")"},
      {"list", "true", R"("true")"},
      {"ref", R"({"s": "x"})", R"({"s":"x"})"},
      {"loop", "1", R"("1")"},
      {"enum", "1", "1"},
      {"const", "1", R"("1")"},
      {"either", "1", "1"},
      {"either", "True", "true"},
      {"object", "{'a': 'b'}", R"({"a":"b"})"},
      {"number", "3", "3"},
      {"number", "2.5", "2.5"},
      {"number", "12345678901234567890123", "12345678901234567890123"},
      {"free", "1", R"("1")"},
      {"mixed", "1", "1"},
      {"mixed", "a", R"("a")"},
      {"none such", "1", R"("1")"},
      {"number", "about 3", R"("about 3")"},
  };
  for (const Case& each : cases) {
    const std::string text = "<tool_call>\n<function=f>\n<parameter=" + std::string(each.name) + ">\n" +
                             each.value + "\n</parameter>\n</function>\n</tool_call>";
    EXPECT_EQ(arguments_of(format_of("qwen3_coder"), own, text),
              "{\"" + std::string(each.name) + "\": " + each.json + "}")
        << each.name << " " << each.value;
  }
}

// Took a minute for each megabyte when all was looked at again for every mark.
TEST(Parser, MarksBetweenXmlParametersTakeLinearTime) {
  std::string text = "<tool_call>\n<function=now>\n";
  for (int i = 0; i < 2'000'000; ++i) text += "<>";
  text += "<parameter=a>1</parameter></function></tool_call>";
  EXPECT_EQ(arguments_of(format_of("qwen3_coder"), tools(), text), R"({"a": "1"})");
}

}  // namespace
}  // namespace quire::answer
