#include "serve/grammar_fields.h"

#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "base/utf8.h"
#include "grammar/gbnf.h"
#include "grammar/schema.h"
#include "grammar/structural_tag.h"

namespace quire::serve {
namespace {

constexpr size_t kMaxGuidedChoices = 2'000;
constexpr size_t kMaxChoiceBytes = 64 << 10;  // together
constexpr size_t kMaxSchemaDepth = 64;

/// Collects the grammar of a request, which may ask for one only.
class Reader {
 public:
  explicit Reader(Fields& fields) : fields_(fields) {}

  const std::string& grammar() const { return grammar_; }

  void schema(const std::string& name, const json::value& value) {
    json::value parsed;
    const json::value* const schema = parse_text(name, value, parsed);
    if (schema == nullptr) return;
    auto grammar = grammar::schema_grammar(*schema);
    if (grammar) return take(name, std::move(*grammar));
    fields_.fail(RequestError{
        RequestErrorCode::kInvalid,
        fmt::format("{}: the schema at '#{}': {}", name, grammar.error().pointer, grammar.error().message),
        name});
  }

  void structural_tag(const std::string& name, const json::value& value) {
    json::value parsed;
    const json::value* tag = parse_text(name, value, parsed);
    if (tag == nullptr) return;
    auto grammar = grammar::structural_tag_grammar(*tag);
    if (grammar) return take(name, std::move(*grammar));
    fields_.fail(RequestError{
        RequestErrorCode::kInvalid,
        fmt::format("{}: the tag at '{}': {}", name, grammar.error().pointer, grammar.error().message),
        name});
  }

  void any_object(const std::string& name) { take(name, grammar::any_object_grammar()); }

  void regex(const std::string& name, std::string_view pattern) {
    take_if(name, grammar::regex_grammar(pattern));
  }

  void gbnf(const std::string& name, std::string_view text) { take_if(name, grammar::gbnf_grammar(text)); }

  void choice(const std::string& name, const json::array& list) {
    std::vector<std::string> texts;
    size_t bytes = 0;
    for (const json::value& each : list) {
      if (!each.is_string() || each.get_string().empty())
        return fields_.fail(name, "must be an array of strings, none empty");
      texts.emplace_back(each.get_string());
      bytes += texts.back().size();
    }
    if (texts.empty()) return fields_.fail(name, "must not be empty");
    if (texts.size() > kMaxGuidedChoices || bytes > kMaxChoiceBytes) {
      return fields_.fail(name, fmt::format("must hold at most {} strings of {} bytes together",
                                            kMaxGuidedChoices, kMaxChoiceBytes));
    }
    take(name, grammar::choice_grammar(texts));
  }

 private:
  /// The value, or if it is a text, as vLLM's clients may send it, what that says in JSON; null: an error.
  const json::value* parse_text(const std::string& name, const json::value& value, json::value& parsed) {
    const json::string* const text = value.if_string();
    if (text == nullptr) return &value;
    try {
      parsed = parse_json(*text, name, kMaxSchemaDepth);
    } catch (const Error& error) {
      fields_.fail(RequestError{RequestErrorCode::kInvalid, error.what(), name});
      return nullptr;
    }
    return &parsed;
  }

  void take(const std::string& name, std::string grammar) {
    if (!source_.empty()) return fields_.fail(name, fmt::format("and {} cannot both be given", source_));
    source_ = name;
    grammar_ = std::move(grammar);
  }
  void take_if(const std::string& name, tl::expected<std::string, std::string> grammar) {
    if (grammar) return take(name, std::move(*grammar));
    fields_.fail(RequestError{RequestErrorCode::kInvalid,
                              fmt::format("{} is not supported: {}", name, grammar.error()), name});
  }

  Fields& fields_;
  std::string source_;  // the field
  std::string grammar_;
};

void finish(Fields& fields, const Fields& inner) {
  if (auto error = inner.finish()) fields.fail(std::move(*error));
}

void read_response_format(Fields& fields, Reader& reader) {
  const json::object* const format = fields.object("response_format");
  if (format == nullptr) return;
  Fields inner(*format, "response_format.");
  const std::string type = inner.string("type").value_or("");
  if (type == "json_object") {
    // llama-server's: with a schema.
    const json::value* const schema = inner.get("schema");
    schema == nullptr ? reader.any_object("response_format")
                      : reader.schema("response_format.schema", *schema);
  } else if (type == "json_schema") {
    const json::object* const wrapper = inner.object("json_schema");
    if (wrapper == nullptr) {
      if (inner.ok()) fields.fail("response_format.json_schema", "is missing");
    } else {
      Fields described(*wrapper, "response_format.json_schema.");
      described.string("name");
      described.string("description");
      described.boolean("strict", false);
      const json::value* const schema = described.get("schema");
      schema == nullptr ? reader.any_object("response_format")
                        : reader.schema("response_format.json_schema.schema", *schema);
      finish(fields, described);
    }
  } else if (type == "structural_tag") {
    for (const char* name : {"format", "structures", "triggers"}) inner.get(name);
    reader.structural_tag("response_format", *format);
  } else if (type != "text") {
    inner.fail("type", "must be text, json_object, json_schema or structural_tag");
  }
  finish(fields, inner);
}

void read_structured_outputs(Fields& fields, Reader& reader) {
  const json::object* const wanted = fields.object("structured_outputs");
  if (wanted == nullptr) return;
  Fields inner(*wanted, "structured_outputs.");
  if (const json::value* const schema = inner.get("json")) reader.schema("structured_outputs.json", *schema);
  if (const auto pattern = inner.string("regex")) reader.regex("structured_outputs.regex", *pattern);
  if (const json::array* const list = inner.array("choice"))
    reader.choice("structured_outputs.choice", *list);
  if (const auto text = inner.string("grammar")) reader.gbnf("structured_outputs.grammar", *text);
  if (inner.boolean("json_object", false)) reader.any_object("structured_outputs.json_object");
  if (const json::value* const tag = inner.get("structural_tag"))
    reader.structural_tag("structured_outputs.structural_tag", *tag);
  // Wishes about how the grammar is written; this server has one way.
  for (const char* name : {"disable_fallback", "disable_any_whitespace", "disable_additional_properties"}) {
    if (inner.boolean(name, false)) inner.unsupported(name);
  }
  if (inner.get("whitespace_pattern") != nullptr) inner.unsupported("whitespace_pattern");
  finish(fields, inner);
  if (fields.ok() && reader.grammar().empty())
    fields.fail("structured_outputs",
                "must hold json, regex, choice, grammar, structural_tag or json_object: true");
}

}  // namespace

std::string read_grammar(Fields& fields) {
  Reader reader(fields);
  read_response_format(fields, reader);
  read_structured_outputs(fields, reader);
  if (const json::value* const schema = fields.get("guided_json")) reader.schema("guided_json", *schema);
  if (const auto pattern = fields.string("guided_regex")) reader.regex("guided_regex", *pattern);
  if (const json::array* const list = fields.array("guided_choice")) reader.choice("guided_choice", *list);
  if (const auto text = fields.string("guided_grammar")) reader.gbnf("guided_grammar", *text);
  if (const auto text = fields.string("grammar"); text && !text->empty()) reader.gbnf("grammar", *text);
  if (const json::value* const schema = fields.get("json_schema")) reader.schema("json_schema", *schema);
  return reader.grammar();
}

}  // namespace quire::serve
