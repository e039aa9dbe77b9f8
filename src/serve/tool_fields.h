#pragma once

#include <set>
#include <string>

#include "answer/call_reader.h"
#include "base/json.h"
#include "serve/fields.h"

namespace quire::serve {

inline constexpr size_t kMaxTools = 1024;
inline constexpr size_t kMaxToolName = 128;  // bytes

/// What a chat request says of tools.
struct ToolWishes {
  answer::Tools tools;  // that may be called; empty: none
  std::string only;     // with needed: the tool to call; empty: any
  bool needed = false;  // the answer must consist of calls
  /// Those whose arguments have to be instances of their parameters.
  std::set<std::string, std::less<>> strict;
  bool parallel = true;  // of several, if the model wants
};

/// Reads tool_choice and parallel_tool_calls, and the tools in a template's `context` (read_chat_prompt).
/// With tool_choice "none" it removes them there, so that the model is not told of them.
ToolWishes read_tool_wishes(Fields& fields, json::object& context);

/// One of OpenAI's values of reasoning_effort; empty if not given.
std::string read_reasoning_effort(Fields& fields);

}  // namespace quire::serve
