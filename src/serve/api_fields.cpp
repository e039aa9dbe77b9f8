#include "serve/api_fields.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include <boost/json/serialize.hpp>
#include <fmt/format.h>

namespace quire::serve {
namespace {

std::string_view type_of(const json::value& example) {
  switch (example.kind()) {
    case json::kind::string:
      return "a string";
    case json::kind::bool_:
      return "true or false";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
    default:
      return "a number";
  }
}

/// Whether `value` may stand where `example` may: any number where there is one.
bool same_type(const json::value& value, const json::value& example) {
  return value.kind() == example.kind() || (value.is_number() && example.is_number());
}

void read_unused(Fields& fields, const ApiField& field) {
  const json::value* value = fields.get(field.name);
  if (value == nullptr) return;
  if (field.use == FieldUse::kIgnored) {
    const json::value example = parse_json(field.values, field.name);
    if (!same_type(*value, example)) fields.fail(field.name, fmt::format("must be {}", type_of(example)));
    return;
  }
  if (field.use == FieldUse::kNeutral) {
    const json::value taken = parse_json(field.values, field.name);
    if (std::ranges::find(taken.as_array(), *value) != taken.as_array().end()) return;
  }
  fields.unsupported(field.name, fmt::format("is not supported: {}", field.remark));
}

std::string owners_of(const ApiField& field) {
  constexpr std::array<std::pair<uint8_t, std::string_view>, 4> kNames = {
      {{kOpenAi, "OpenAI"}, {kVllm, "vLLM"}, {kLlamaServer, "llama-server"}, {kQuire, "quire"}}};
  std::string out;
  for (const auto& [bit, name] : kNames) {
    if ((field.owners & bit) == 0) continue;
    if (!out.empty()) out += ", ";
    out += name;
  }
  return out;
}

std::string use_of(const ApiField& field) {
  switch (field.use) {
    case FieldUse::kHonoured:
      return "honoured";
    case FieldUse::kIgnored:
      return "ignored";
    case FieldUse::kRefused:
      return "refused";
    case FieldUse::kNeutral:
      break;
  }
  const json::value taken = parse_json(field.values, field.name);
  std::string out = "refused, except";
  std::string last;
  for (const json::value& value : taken.as_array()) {
    const std::string text = value.is_double() && value.get_double() == static_cast<int>(value.get_double())
                                 ? std::to_string(static_cast<int>(value.get_double()))
                                 : json::serialize(value);
    if (text != last) out += fmt::format("{} `{}`", last.empty() ? "" : ",", text);
    last = text;
  }
  return out;
}

void append_table(ApiEndpoint endpoint, std::string& out) {
  out += "| field | whose | quire | remark |\n|---|---|---|---|\n";
  for (const ApiField& field : api_fields()) {
    if (!field.is_for(endpoint)) continue;
    fmt::format_to(std::back_inserter(out), "| `{}` | {} | {} | {} |\n", field.name, owners_of(field),
                   use_of(field), field.remark);
  }
}

}  // namespace

void read_unused_fields(Fields& fields, ApiEndpoint endpoint) {
  for (const ApiField& field : api_fields()) {
    if (field.use != FieldUse::kHonoured && field.is_for(endpoint)) read_unused(fields, field);
  }
}

std::string api_fields_page() {
  std::string out =
      "# Fields of a request\n\n"
      "What `quire serve` does with each field that OpenAI, vLLM and llama-server document for these "
      "endpoints. "
      "A field that\nis refused gives status 400, and the error names it and says why; so does a field that "
      "stands in no row. `null` is the\nsame as omitting a field.\n\n"
      "Written from [api_field_table.cpp](../src/serve/api_field_table.cpp) by\n"
      "`QUIRE_WRITE_DOCS=1 build/release/tests/serve/serve_test --gtest_filter='ApiFields.*'`.\n\n"
      "## POST /v1/completions\n\n";
  append_table(ApiEndpoint::kCompletions, out);
  out += "\n## POST /v1/chat/completions\n\n";
  append_table(ApiEndpoint::kChat, out);
  return out;
}

}  // namespace quire::serve
