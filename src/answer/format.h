#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire::answer {

/// How a call is written inside a section of calls. Each may also be a JSON object with "name" and
/// "arguments" (or "parameters").
enum class CallSyntax : uint8_t {
  kJson,      // {"name": "f", "arguments": {...}}, several with commas or semicolons, in brackets or not
  kNamed,     // a name and then the arguments as a JSON object: f{"a": 1}
  kXml,       // <function=f><parameter=a>1</parameter></function>
  kPythonic,  // f(a=1, b="x")
};

/// A text after which calls follow.
struct CallMark {
  std::string text;
  size_t kept = 0;  // bytes at its end that belong to the calls
  /// It counts only at the beginning of an answer, whatever white space it holds there, and all of it belongs
  /// to the calls.
  bool at_start = false;
};

/// How a family of models writes tool calls.
struct ToolFormat {
  std::string_view name;
  CallSyntax syntax = CallSyntax::kJson;
  /// Each begins a section of calls; the first is the one that the model's template teaches.
  std::vector<std::string_view> opens;
  /// A call itself begins with it, inside a section or without one; empty: calls begin otherwise.
  std::string_view call_open;
  /// Each ends a section.
  std::vector<std::string_view> closes;
  /// What else may stand between calls, besides white space, commas, semicolons and brackets.
  std::vector<std::string_view> between;
  /// A section may also begin without a mark, where the answer begins with this character; 0: no.
  char bare = 0;
  /// Templates that teach it hold all of these words.
  std::vector<std::string_view> words;
  /// The length of a call's id, which some templates check; 0: any.
  size_t id_length = 0;
  /// The key of the arguments in a JSON call.
  std::string_view arguments_key = "arguments";

  // How calls are written where a grammar enforces them.

  /// What stands before, between and behind the calls of an answer that consists of them.
  std::string_view before = "<tool_call>\n";
  std::string_view separator = "\n</tool_call>\n<tool_call>\n";
  std::string_view behind = "\n</tool_call>";
  /// A call of kNamed: what stands before the name, between it and the arguments, and behind them. Empty:
  /// such a call is written as JSON.
  std::array<std::string_view, 3> named = {};
  /// What an answer has only where it calls.
  std::vector<CallMark> certain = {{"<tool_call>"}};

  /// All marks, which a tokenizer may have as special tokens.
  std::vector<std::string_view> marks() const;
};

/// How a family of models marks what it thinks before it answers.
struct ReasoningFormat {
  std::string_view name;
  std::string_view open;
  std::string_view close;
  std::vector<std::string_view> words;  // as above
};

std::span<const ToolFormat> tool_formats();
std::span<const ReasoningFormat> reasoning_formats();

/// The format of that name; null if there is none.
const ToolFormat* find_tool_format(std::string_view name);
const ReasoningFormat* find_reasoning_format(std::string_view name);

/// The format that a chat template teaches, by its words; null if none is known.
const ToolFormat* tool_format_of(std::string_view chat_template);
const ReasoningFormat* reasoning_format_of(std::string_view chat_template);

}  // namespace quire::answer
