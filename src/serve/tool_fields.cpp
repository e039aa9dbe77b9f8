#include "serve/tool_fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"

namespace quire::serve {
namespace {

constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                      "high", "xhigh",   "max"};

bool is_tool_name(std::string_view name) {
  constexpr std::string_view kOthers = "_-.:/";
  return !name.empty() && name.size() <= kMaxToolName && std::ranges::all_of(name, [&](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           kOthers.find(c) != std::string_view::npos;
  });
}

/// The tools by name. read_chat_prompt has seen that each is an object with a function.
void read_list(Fields& fields, const json::array& list, ToolWishes& wishes) {
  answer::Tools& out = wishes.tools;
  if (list.size() > kMaxTools) fields.fail("tools", fmt::format("must hold at most {} tools", kMaxTools));
  for (size_t i = 0; i < list.size() && fields.ok(); ++i) {
    const json::object& function = list[i].get_object().at("function").as_object();
    const std::string path = fmt::format("tools[{}].function", i);
    const json::value* name = function.if_contains("name");
    if (name == nullptr || !name->is_string() || !is_tool_name(name->get_string())) {
      fields.fail(path + ".name",
                  fmt::format("must be a name of 1 to {} letters, digits and _ - . : /", kMaxToolName));
      break;
    }
    const json::value* parameters = function.if_contains("parameters");
    if (parameters != nullptr && !parameters->is_null() && !parameters->is_object()) {
      fields.fail(path + ".parameters", "must be a JSON schema, as an object");
      break;
    }
    const bool given = parameters != nullptr && parameters->is_object();
    const bool is_new =
        out.emplace(name->get_string(), given ? parameters->get_object() : json::object()).second;
    if (!is_new) fields.fail(path + ".name", "must be another name than that of the tools before");
    const json::value* strict = function.if_contains("strict");
    if (strict != nullptr && !strict->is_null() && !strict->is_bool()) {
      fields.fail(path + ".strict", "must be true or false");
    } else if (strict != nullptr && *strict == true) {
      wishes.strict.emplace(name->get_string());
    }
  }
}

/// {"type": "function", "function": {"name": "f"}}: only that tool.
void read_named_choice(Fields& fields, const json::object& choice, ToolWishes& out) {
  Fields inner(choice, "tool_choice.");
  const std::string type = inner.string("type").value_or("");
  if (type != "function") inner.unsupported("type", "must be function");
  const json::object* function = inner.object("function");
  if (function == nullptr) {
    inner.fail("function", "is missing");
  } else {
    Fields named(*function, "tool_choice.function.");
    out.only = named.string("name").value_or("");
    if (named.ok() && !out.tools.contains(out.only)) named.fail("name", "must be one of tools");
    if (auto error = named.finish()) inner.fail(std::move(*error));
  }
  if (auto error = inner.finish()) fields.fail(std::move(*error));
  out.needed = true;
}

}  // namespace

ToolWishes read_tool_wishes(Fields& fields, json::object& context) {
  ToolWishes out;
  out.parallel = fields.boolean("parallel_tool_calls", true);
  json::value& tools = context["tools"];
  const json::value* choice = fields.get("tool_choice");
  const bool none = choice != nullptr && *choice == "none";
  if (tools.is_array() && fields.ok()) read_list(fields, tools.get_array(), out);
  if (none) {
    tools = nullptr;
    out.tools.clear();
    out.strict.clear();
  } else if (choice != nullptr && *choice != "auto") {
    if (out.tools.empty()) {
      fields.fail("tool_choice", "needs tools");
    } else if (choice->is_object()) {
      read_named_choice(fields, choice->get_object(), out);
    } else if (*choice == "required") {
      out.needed = true;
    } else {
      fields.fail("tool_choice",
                  "must be none, auto, required, or {\"type\": \"function\", \"function\": {\"name\": ...}}");
    }
  }
  return out;
}

std::string read_reasoning_effort(Fields& fields) {
  std::string effort = fields.string("reasoning_effort").value_or("");
  if (!effort.empty() && std::ranges::find(kEfforts, effort) == kEfforts.end()) {
    fields.fail("reasoning_effort", fmt::format("must be one of {}", fmt::join(kEfforts, ", ")));
  }
  return effort;
}

}  // namespace quire::serve
