#include "serve/tool_fields.h"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/trim.h"
#include "grammar/ebnf.h"
#include "grammar/schema.h"

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

/// Moves the references of a schema to where it stands as a part of another.
void move_references(json::value& schema, std::string_view to, size_t depth = 0) {
  constexpr size_t kMaxDepth = 64;
  if (depth > kMaxDepth) return;  // the schema is refused for its depth
  if (auto* list = schema.if_array()) {
    for (json::value& each : *list) move_references(each, to, depth + 1);
  } else if (auto* object = schema.if_object()) {
    for (auto& [key, value] : *object) {
      if (key == "$ref" && value.is_string() && value.get_string().starts_with('#')) {
        value = fmt::format("#{}{}", to, std::string_view(value.get_string()).substr(1));
      } else {
        move_references(value, to, depth + 1);
      }
    }
  }
}

/// Whether a function takes no arguments: its parameters speak of no member.
bool has_no_members(const json::object& parameters) {
  constexpr std::array<std::string_view, 5> kSilent = {"type", "title", "description", "$schema", "$id"};
  return std::ranges::all_of(parameters, [&](const auto& member) {
    const bool is_list = member.key() == "properties" || member.key() == "required";
    const json::value& value = member.value();
    const bool is_empty =
        (value.is_object() && value.get_object().empty()) || (value.is_array() && value.get_array().empty());
    return (is_list && is_empty) ||
           std::ranges::find(kSilent, std::string_view(member.key())) != kSilent.end();
  });
}

/// The schema of one call as an object.
json::object call_schema(const std::string& name, const json::object& parameters, std::string_view key,
                         std::string_view path) {
  json::value arguments = parameters;
  if (!parameters.contains("type")) arguments.get_object()["type"] = "object";
  if (has_no_members(parameters)) arguments.get_object()["additionalProperties"] = false;
  move_references(arguments, fmt::format("{}/properties/{}", path, key));
  json::object properties{{"name", {{"const", name}}}};
  properties[key] = std::move(arguments);
  return {{"type", "object"},
          {"properties", std::move(properties)},
          {"required", json::array{"name", json::string(key)}},
          {"additionalProperties", false}};
}

/// In the words of the request: the pointer is one into the schema of all calls.
RequestError schema_error(const grammar::SchemaFault& fault, const std::vector<std::string>& names,
                          std::string_view key) {
  for (size_t i = 0; i < names.size(); ++i) {
    const std::string place = fmt::format("/anyOf/{}/properties/{}", i, key);
    if (!fault.pointer.starts_with(place + "/") && fault.pointer != place) continue;
    return {RequestErrorCode::kInvalid,
            fmt::format("tools: calls of {} cannot be enforced: its parameters at '#{}': {}", names[i],
                        std::string_view(fault.pointer).substr(place.size()), fault.message),
            "tools"};
  }
  return {RequestErrorCode::kInvalid, fmt::format("tools: calls cannot be enforced: {}", fault.message),
          "tools"};
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

namespace {

/// The rules of one call as a JSON object, which is the rule "toolcall".
Expected<std::string> call_rules(const ToolWishes& wishes, const answer::ToolFormat& format,
                                 bool only_strict) {
  json::array calls;
  std::vector<std::string> names;
  for (const auto& [name, parameters] : wishes.tools) {
    if (!wishes.only.empty() && name != wishes.only) continue;
    const bool free = only_strict && !wishes.strict.contains(name);
    const std::string path = fmt::format("/anyOf/{}", calls.size());
    // An object that may have any members.
    const json::object any{{"type", "object"}, {"additionalProperties", true}};
    calls.push_back(call_schema(name, free ? any : parameters, format.arguments_key, path));
    names.push_back(name);
  }
  auto rules = grammar::schema_grammar(json::object{{"anyOf", std::move(calls)}}, "toolcall");
  if (!rules) return tl::unexpected(schema_error(rules.error(), names, format.arguments_key));
  return "\n" + *rules;
}

std::string quoted(std::string_view mark) {
  return mark.empty() ? std::string() : grammar::literal(mark) + " ";
}

}  // namespace

Expected<std::string> tool_grammar(const ToolWishes& wishes, const answer::ToolFormat& format) {
  auto rules = call_rules(wishes, format, false);
  if (!rules) return rules;
  std::string root = quoted(format.before) + "toolcall ";
  if (wishes.parallel && wishes.only.empty()) root += fmt::format("({}toolcall)* ", quoted(format.separator));
  return fmt::format("root ::= {}{}{}", root, quoted(format.behind), *rules);
}

Expected<std::string> strict_tool_grammar(const ToolWishes& wishes, const answer::ToolFormat& format) {
  if (format.opens.empty() || !format.before.starts_with(format.opens.front())) return std::string();
  auto rules = call_rules(wishes, format, true);
  if (!rules) return rules;
  const std::string_view begin = trim(format.before.substr(format.opens.front().size()));
  const std::string_view end = trim(format.behind);
  // One call up to its end; a list goes on with commas.
  const bool is_list = begin.ends_with('[');
  std::string root = "toolspace " + quoted(begin) + "toolspace toolcall toolspace ";
  if (is_list) root += "(\",\" toolspace toolcall toolspace)* ";
  return fmt::format("root ::= {}{}\ntoolspace ::= [ \\n]? {}", root, quoted(end), *rules);
}

}  // namespace quire::serve
