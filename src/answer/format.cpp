#include "answer/format.h"

#include <algorithm>

namespace quire::answer {
namespace {

bool holds_all(std::string_view text, const std::vector<std::string_view>& words) {
  return std::ranges::all_of(words, [&](std::string_view word) { return text.find(word) != text.npos; });
}

}  // namespace

// The first whose words a template holds is its format: the more particular come first.
std::span<const ToolFormat> tool_formats() {
  static const std::vector<ToolFormat> formats = {
      {.name = "qwen3_coder",
       .syntax = CallSyntax::kXml,
       .opens = {"<tool_call>"},
       .call_open = "<function=",
       .closes = {"</tool_call>"},
       .words = {"<tool_call>", "<function=", "<parameter="}},
      {.name = "deepseek",
       .syntax = CallSyntax::kNamed,
       .opens = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
       .closes = {"<｜tool▁calls▁end｜>"},
       .between = {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "```"},
       .words = {"<｜tool▁call▁begin｜>", "```"},
       .before = "<｜tool▁calls▁begin｜>",
       .separator = "\n",
       .behind = "<｜tool▁calls▁end｜>",
       .named = {"<｜tool▁call▁begin｜>function<｜tool▁sep｜>", "\n```json\n", "\n```<｜tool▁call▁end｜>"},
       .certain = {{"<｜tool▁calls▁begin｜>"}}},
      {.name = "deepseek_v31",
       .syntax = CallSyntax::kNamed,
       .opens = {"<｜tool▁calls▁begin｜>", "<｜tool▁call▁begin｜>"},
       .closes = {"<｜tool▁calls▁end｜>"},
       .between = {"<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "```"},
       .words = {"<｜tool▁call▁begin｜>"},
       .before = "<｜tool▁calls▁begin｜>",
       .separator = "",
       .behind = "<｜tool▁calls▁end｜>",
       .named = {"<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"},
       .certain = {{"<｜tool▁calls▁begin｜>"}}},
      {.name = "mistral_args",
       .syntax = CallSyntax::kNamed,
       .opens = {"[TOOL_CALLS]"},
       .words = {"[TOOL_CALLS]", "[ARGS]"},
       .id_length = 9,
       .before = "[TOOL_CALLS]",
       .separator = "[TOOL_CALLS]",
       .behind = "",
       .named = {"", "[ARGS]", ""},
       .certain = {{"[TOOL_CALLS]"}}},
      {.name = "mistral",
       .syntax = CallSyntax::kNamed,
       .opens = {"[TOOL_CALLS]"},
       .words = {"[TOOL_CALLS]"},
       .id_length = 9,
       .before = "[TOOL_CALLS] [",
       .separator = ", ",
       .behind = "]",
       .certain = {{"[TOOL_CALLS]"}}},
      {.name = "phi4",
       .opens = {"<|tool_call|>", "functools"},
       .closes = {"<|/tool_call|>"},
       .words = {"<|tool|>"},
       .before = "functools[",
       .separator = ", ",
       .behind = "]",
       .certain = {{"<|tool_call|>"}, {"functools[", 1}}},
      {.name = "granite",
       .opens = {"<|tool_call|>", "<tool_call>"},
       .closes = {"</tool_call>"},
       .words = {"<|tool_call|>"},
       .before = "<|tool_call|>[",
       .separator = ", ",
       .behind = "]",
       .certain = {{"<|tool_call|>"}, {"<tool_call>"}}},
      {.name = "hermes", .opens = {"<tool_call>"}, .closes = {"</tool_call>"}, .words = {"<tool_call>"}},
      // The marks of a call without a mark are those of its tools.
      {.name = "pythonic",
       .syntax = CallSyntax::kPythonic,
       .opens = {"<|python_start|>"},
       .closes = {"<|python_end|>"},
       .bare = '[',
       .words = {"func_name1(param"},
       .arguments_key = "parameters",
       .before = "[",
       .separator = ", ",
       .behind = "]",
       .certain = {{"<|python_start|>"}}},
      {.name = "llama3_json",
       .opens = {"<|python_tag|>"},
       .bare = '{',
       .words = {"<|start_header_id|>", "\"parameters\""},
       .arguments_key = "parameters",
       .before = "",
       .separator = "; ",
       .behind = "",
       .certain = {{"<|python_tag|>"}, {"{\"name\":", 0, true}}},
  };
  return formats;
}

std::span<const ReasoningFormat> reasoning_formats() {
  static const std::vector<ReasoningFormat> formats = {
      {"think", "<think>", "</think>", {"</think>"}},
      {"mistral", "[THINK]", "[/THINK]", {"[THINK]"}},
      {"granite", "Here is my thought process:", "Here is my response:", {"Here is my thought process:"}},
  };
  return formats;
}

std::vector<std::string_view> ToolFormat::marks() const {
  std::vector<std::string_view> out = opens;
  out.insert(out.end(), closes.begin(), closes.end());
  out.insert(out.end(), between.begin(), between.end());
  // Parts of a call's head, see read_named_call().
  if (syntax == CallSyntax::kNamed) out.insert(out.end(), {"<｜tool▁sep｜>", "[ARGS]", "[CALL_ID]"});
  return out;
}

const ToolFormat* find_tool_format(std::string_view name) {
  const auto found = std::ranges::find(tool_formats(), name, &ToolFormat::name);
  return found == tool_formats().end() ? nullptr : &*found;
}

const ReasoningFormat* find_reasoning_format(std::string_view name) {
  const auto found = std::ranges::find(reasoning_formats(), name, &ReasoningFormat::name);
  return found == reasoning_formats().end() ? nullptr : &*found;
}

const ToolFormat* tool_format_of(std::string_view chat_template) {
  const auto found = std::ranges::find_if(
      tool_formats(), [&](const ToolFormat& format) { return holds_all(chat_template, format.words); });
  return found == tool_formats().end() ? nullptr : &*found;
}

const ReasoningFormat* reasoning_format_of(std::string_view chat_template) {
  const auto found = std::ranges::find_if(reasoning_formats(), [&](const ReasoningFormat& format) {
    return holds_all(chat_template, format.words);
  });
  return found == reasoning_formats().end() ? nullptr : &*found;
}

}  // namespace quire::answer
