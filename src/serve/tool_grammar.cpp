#include "serve/tool_grammar.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/trim.h"
#include "grammar/ebnf.h"
#include "grammar/expression.h"
#include "grammar/schema.h"

namespace quire::serve {
namespace {

using answer::CallSyntax;

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

/// One parameter of a call that is not written as JSON.
struct Parameter {
  std::string name;
  bool required = false;
  bool raw = false;                 // any text, as it is
  std::vector<std::string> values;  // or one of these texts; empty and not raw: JSON
};

bool is_python_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && is_letter(name.front()) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9'); });
}

bool is_xml_name(std::string_view name) {
  return !name.empty() && name.find_first_of("<>\r\n") == name.npos && trim(name).size() == name.size();
}

bool has_only(const json::object& object, std::initializer_list<std::string_view> keys) {
  return std::ranges::all_of(object, [&](const auto& member) {
    return std::ranges::find(keys, std::string_view(member.key())) != keys.end();
  });
}

/// Whether the answer's parser (answer/xml_calls.cpp) takes the value as it is, and what it may be then.
/// False if it cannot be written in that way.
bool fit_raw(const json::object& schema, Parameter& parameter) {
  const json::value* const type = schema.if_contains("type");
  if (type != nullptr && *type != "string") return true;  // JSON
  if (type == nullptr) return schema.contains("anyOf");
  if (!has_only(schema, {"type", "enum", "title", "description", "default", "examples"})) return false;
  const json::value* const list = schema.if_contains("enum");
  parameter.raw = list == nullptr;
  if (list == nullptr) return true;
  if (!list->is_array() || list->get_array().empty()) return false;
  for (const json::value& value : list->get_array()) {
    if (!value.is_string() || value.get_string().find_first_of("<\n") != std::string_view::npos) return false;
    parameter.values.emplace_back(value.get_string());
  }
  return true;
}

/// The parameters, if the schema asks for no more than can be written one by one.
std::optional<std::vector<Parameter>> parameters_of(const json::object& schema, CallSyntax syntax) {
  if (!has_only(schema, {"type", "properties", "required", "additionalProperties", "title", "description",
                         "$schema", "$defs", "definitions"})) {
    return std::nullopt;
  }
  std::vector<Parameter> out;
  const json::value* const properties = schema.if_contains("properties");
  if (properties != nullptr && !properties->is_object()) return std::nullopt;
  for (size_t i = 0; properties != nullptr && i < properties->get_object().size(); ++i) {
    const auto& member = *(properties->get_object().begin() + static_cast<ptrdiff_t>(i));
    Parameter& parameter = out.emplace_back(Parameter{member.key()});
    const bool fine = syntax == CallSyntax::kXml
                          ? is_xml_name(parameter.name) && member.value().is_object() &&
                                fit_raw(member.value().get_object(), parameter)
                          : is_python_name(parameter.name);
    if (!fine) return std::nullopt;
  }
  const json::value* const required = schema.if_contains("required");
  if (required != nullptr && !required->is_array()) return std::nullopt;
  for (size_t i = 0; required != nullptr && i < required->get_array().size(); ++i) {
    const json::value& name = required->get_array()[i];
    const auto found = std::ranges::find_if(
        out, [&](const Parameter& each) { return name.is_string() && each.name == name.get_string(); });
    if (found == out.end()) return std::nullopt;
    found->required = true;
  }
  return out;
}

/// Literals of Python, by name, and arguments that may be any.
std::string free_python() {
  using namespace grammar;
  const auto string_in = [](char quote) {
    const auto own = static_cast<char32_t>(quote);
    const CharSet escape = CharSet::of_range('\\', '\\');
    const CharSet line = CharSet::of_range('\n', '\n');
    const CharSet plain = CharSet::of_range(own, own).united(escape).united(line).complement();
    const Expression character =
        choice({one_of(any_character().intersected(plain)),
                sequence({one_of(escape), one_of(any_character().intersected(line.complement()))})});
    return sequence({text({&quote, 1}), repeat(character, 0, Expression::kUnbounded), text({&quote, 1})});
  };
  return fmt::format(
      "freestring ::= {} | {}\n"
      "freenumber ::= Regex(\"-{{0,1}}[0-9]+(?:[.][0-9]+|)(?:[eE][+-]{{0,1}}[0-9]+|)\")\n"
      "freeword ::= \"True\" | \"False\" | \"None\" | \"true\" | \"false\" | \"null\"\n"
      "freelist ::= \"[\" (freevalue (\",\" toolspace freevalue)*)? \"]\"\n"
      "freepair ::= freestring \":\" toolspace freevalue\n"
      "freedict ::= \"{{\" (freepair (\",\" toolspace freepair)*)? \"}}\"\n"
      "freevalue ::= freestring | freenumber | freeword | freelist | freedict\n"
      "freeargument ::= [A-Za-z_] [A-Za-z0-9_]* \"=\" freevalue\n",
      body(string_in('"')), body(string_in('\'')));
}

constexpr std::array<std::string_view, 3> kXmlMarks = {"</parameter>", "</function>", "<parameter="};

std::string free_xml() {
  using namespace grammar;
  const CharSet ends =
      CharSet::of_range('<', '<').united(CharSet::of_range('>', '>')).united(CharSet::of_range('\n', '\n'));
  const Expression name =
      repeat(one_of(any_character().intersected(ends.complement())), 1, Expression::kUnbounded);
  return fmt::format(
      "rawvalue ::= {}\n"
      "freeparameter ::= \"<parameter=\" {} \">\\n\" rawvalue \"\\n</parameter>\\n\"\n",
      body(text_without(kXmlMarks)), body(name));
}

/// Writes the rules of calls: "toolcall", and what it needs.
class CallRules {
 public:
  CallRules(const ToolWishes& wishes, const answer::ToolFormat& format, const MarkTokens& tokens,
            bool only_strict)
      : wishes_(wishes), format_(format), tokens_(tokens), only_strict_(only_strict) {}

  Expected<std::string> write() {
    for (const auto& [name, parameters] : wishes_.tools) {
      if (wishes_.only.empty() || name == wishes_.only) add(name, parameters);
    }
    auto schemas = grammar::schema_rules(document_, wanted_);
    if (!schemas) return tl::unexpected(error_of(schemas.error()));
    if (format_.syntax == CallSyntax::kPythonic) rules_ += free_python();
    if (format_.syntax == CallSyntax::kXml) rules_ += free_xml();
    return fmt::format("toolcall ::= {}\ntoolspace ::= [ \\n]?\n{}{}", fmt::join(calls_, " | "), rules_,
                       *schemas);
  }

  /// A text with marks in it, some of which may be tokens.
  std::string text(std::string_view of) const {
    std::string out;
    while (!of.empty()) {
      size_t at = of.size();
      const MarkTokens::value_type* first = nullptr;
      for (const auto& token : tokens_) {
        const size_t found = of.find(token.first);
        if (found >= at) continue;
        at = found;
        first = &token;
      }
      if (at > 0) out += grammar::literal(of.substr(0, at)) + " ";
      if (first != nullptr) out += fmt::format("Token({}) ", first->second);
      of.remove_prefix(first == nullptr ? at : at + first->first.size());
    }
    return out;
  }

 private:
  void add(const std::string& name, const json::object& parameters) {
    const size_t number = document_.size();
    const bool free = only_strict_ && !wishes_.strict.contains(name);
    const std::string rule = fmt::format("call{}", number);
    calls_.push_back(rule);
    names_.push_back(name);
    places_.push_back(fmt::format("/{}", number));
    std::optional<std::vector<Parameter>> each;
    if (!free) each = parameters_of(parameters, format_.syntax);
    const bool alone = free || each.has_value();  // parameter by parameter
    if (format_.syntax == CallSyntax::kNamed && !format_.named[1].empty()) {
      add_named(rule, name, parameters, free);
    } else if (format_.syntax == CallSyntax::kXml && alone) {
      document_.push_back(arguments(parameters, free));
      rules_ += fmt::format("{} ::= {}{}{}\n", rule, text(fmt::format("<function={}>\n", name)),
                            free ? "freeparameter* " : xml_parameters(*each), text("</function>"));
    } else if (format_.syntax == CallSyntax::kPythonic && alone && is_python_name(name)) {
      document_.push_back(arguments(parameters, free));
      const std::string all =
          free ? "(freeargument (\",\" toolspace freeargument)*)? " : python_parameters(*each);
      rules_ += fmt::format("{} ::= {}{}\")\"\n", rule, text(name + "("), all);
    } else {
      add_json(rule, name, parameters, free);
    }
  }

  void add_json(const std::string& rule, const std::string& name, const json::object& parameters, bool free) {
    const std::string_view key = format_.arguments_key;
    places_.back() += fmt::format("/properties/{}", key);
    json::object properties{{"name", {{"const", name}}}};
    properties[key] = arguments(parameters, free);
    document_.push_back(json::object{{"type", "object"},
                                     {"properties", std::move(properties)},
                                     {"required", json::array{"name", json::string(key)}},
                                     {"additionalProperties", false}});
    wanted_.push_back({rule, fmt::format("/{}", document_.size() - 1)});
  }

  void add_named(const std::string& rule, const std::string& name, const json::object& parameters,
                 bool free) {
    const std::string of_arguments = fmt::format("arguments{}", document_.size());
    document_.push_back(arguments(parameters, free));
    wanted_.push_back({of_arguments, places_.back()});
    rules_ += fmt::format("{} ::= {}{}{} {}\n", rule, text(std::string(format_.named[0]) + name),
                          text(format_.named[1]), of_arguments, text(format_.named[2]));
  }

  /// The schema of a call's arguments, at the last of places_.
  json::value arguments(const json::object& parameters, bool free) const {
    if (free) return {{"type", "object"}, {"additionalProperties", true}};
    json::value out = parameters;
    if (!parameters.contains("type")) out.get_object()["type"] = "object";
    if (has_no_members(parameters)) out.get_object()["additionalProperties"] = false;
    grammar::move_references(out, places_.back());
    return out;
  }

  /// The rule of one parameter's value as JSON.
  std::string json_value(const Parameter& parameter) {
    const std::string rule = fmt::format("value{}", wanted_.size());
    wanted_.push_back({rule, grammar::pointer_to(places_.back() + "/properties", parameter.name)});
    return rule + " ";
  }

  std::string xml_parameters(const std::vector<Parameter>& parameters) {
    std::string out;
    for (const Parameter& parameter : parameters) {
      std::string value = "rawvalue ";
      if (!parameter.values.empty()) {
        std::vector<std::string> texts;
        for (const std::string& each : parameter.values) texts.push_back(grammar::literal(each));
        value = fmt::format("({}) ", fmt::join(texts, " | "));
      } else if (!parameter.raw) {
        value = json_value(parameter);
      }
      out += fmt::format("({}{}{}){} ", text(fmt::format("<parameter={}>\n", parameter.name)), value,
                         text("\n</parameter>\n"), parameter.required ? "" : "?");
    }
    return out;
  }

  /// The first rule of a chain, with one before the first argument and one after it for each parameter.
  std::string python_parameters(const std::vector<Parameter>& parameters) {
    std::string first = "\"\"";
    std::string more = "\"\"";
    for (size_t i = parameters.size(); i-- > 0;) {
      const std::string argument = text(parameters[i].name + "=") + json_value(parameters[i]);
      const std::string next_first = fmt::format("first{}x{}", document_.size(), i);
      const std::string next_more = fmt::format("more{}x{}", document_.size(), i);
      const auto or_none = [&](const std::string& none) {
        return parameters[i].required ? "" : " | " + none;
      };
      rules_ += fmt::format("{} ::= {}{}{}\n", next_first, argument, more, or_none(first));
      rules_ += fmt::format("{} ::= \",\" toolspace {}{}{}\n", next_more, argument, more, or_none(more));
      first = next_first;
      more = next_more;
    }
    return first + " ";
  }

  /// In the words of the request: the fault's pointer is one into document_.
  RequestError error_of(const grammar::SchemaFault& fault) const {
    for (size_t i = 0; i < places_.size(); ++i) {
      if (!fault.pointer.starts_with(places_[i] + "/") && fault.pointer != places_[i]) continue;
      return {RequestErrorCode::kInvalid,
              fmt::format("tools: calls of {} cannot be enforced: its parameters at '#{}': {}", names_[i],
                          std::string_view(fault.pointer).substr(places_[i].size()), fault.message),
              "tools"};
    }
    return {RequestErrorCode::kInvalid, fmt::format("tools: calls cannot be enforced: {}", fault.message),
            "tools"};
  }

  const ToolWishes& wishes_;
  const answer::ToolFormat& format_;
  const MarkTokens& tokens_;
  const bool only_strict_;
  json::array document_;  // a schema for each tool
  std::vector<grammar::SchemaRule> wanted_;
  std::vector<std::string> calls_;   // the rule of each tool
  std::vector<std::string> names_;   // of each tool
  std::vector<std::string> places_;  // JSON pointers to the parameters of each
  std::string rules_;
};

}  // namespace

Expected<std::string> tool_grammar(const ToolWishes& wishes, const answer::ToolFormat& format,
                                   const MarkTokens& tokens, bool only_strict) {
  CallRules calls(wishes, format, tokens, only_strict);
  auto rules = calls.write();
  if (!rules) return rules;
  std::string root = calls.text(format.before) + "toolcall ";
  if (wishes.parallel && wishes.only.empty())
    root += fmt::format("({}toolcall)* ", calls.text(format.separator));
  return fmt::format("root ::= {}{}\n{}", root, calls.text(format.behind), *rules);
}

Expected<std::string> strict_tool_grammar(const ToolWishes& wishes, const answer::ToolFormat& format,
                                          const MarkTokens& tokens) {
  CallRules calls(wishes, format, tokens, true);
  auto rules = calls.write();
  if (!rules) return rules;
  const auto open = std::ranges::find_if(
      format.opens, [&](std::string_view mark) { return format.before.starts_with(mark); });
  const std::string_view mark = open == format.opens.end() ? "" : *open;
  const std::string begin = calls.text(trim(format.before.substr(mark.size())));
  std::string root = "toolspace " + (begin.empty() ? "" : begin + "toolspace ") + "toolcall toolspace ";
  // Where each call has marks of its own, the next one begins with a mark.
  if (mark.empty() || format.separator.find(mark) == std::string_view::npos)
    root += fmt::format("({}toolspace toolcall toolspace)* ", calls.text(trim(format.separator)));
  return fmt::format("root ::= {}{}\n{}", root, calls.text(trim(format.behind)), *rules);
}

std::vector<grammar::Mark> certain_marks(const ToolWishes& wishes, const answer::ToolFormat& format) {
  std::vector<grammar::Mark> out;
  for (const answer::CallMark& mark : format.certain) out.push_back({mark.text, mark.kept, mark.at_start});
  for (const auto& [name, parameters] : wishes.tools) {
    if (format.syntax == CallSyntax::kPythonic && is_python_name(name))
      out.push_back({.text = fmt::format("[{}(", name), .at_start = true});
  }
  return out;
}

}  // namespace quire::serve
