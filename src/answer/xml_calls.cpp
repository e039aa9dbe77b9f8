// Qwen3-Coder's calls.
#include <algorithm>
#include <iterator>
#include <optional>
#include <utility>

#include <boost/json/serialize.hpp>

#include "answer/call_reader.h"
#include "base/trim.h"

namespace quire::answer {
namespace {

enum Kind : uint8_t {
  kNull = 1,
  kBoolean = 2,
  kInteger = 4,
  kNumber = 8,
  kString = 16,
  kArray = 32,
  kObject = 64
};
constexpr uint8_t kUnknown = 0;

uint8_t kind_named(std::string_view name) {
  constexpr std::pair<std::string_view, uint8_t> kNames[] = {
      {"null", kNull},     {"boolean", kBoolean}, {"integer", kInteger}, {"number", kInteger | kNumber},
      {"string", kString}, {"array", kArray},     {"object", kObject}};
  const auto* const found = std::ranges::find(kNames, name, &std::pair<std::string_view, uint8_t>::first);
  return found == std::end(kNames) ? kUnknown : found->second;
}

uint8_t kind_of(const json::value& value) {
  if (value.is_null()) return kNull;
  if (value.is_bool()) return kBoolean;
  if (value.is_double()) return kNumber;
  if (value.is_number()) return kInteger;
  if (value.is_string()) return kString;
  return value.is_array() ? kArray : kObject;
}

/// What "#/$defs/NAME" or "#/definitions/NAME" refers to; null for others.
const json::value* definition(const json::object& root, std::string_view reference) {
  for (const std::string_view place : {"$defs", "definitions"}) {
    const std::string begin = "#/" + std::string(place) + "/";
    if (!reference.starts_with(begin)) continue;
    const json::value* const all = root.if_contains(place);
    const json::object* const list = all == nullptr ? nullptr : all->if_object();
    return list == nullptr ? nullptr : list->if_contains(reference.substr(begin.size()));
  }
  return nullptr;
}

/// The kinds of values that a schema permits, as far as it says; kUnknown: it does not.
uint8_t kinds_of(const json::value& schema, const json::object& root, size_t depth) {
  constexpr size_t kMostDepth = 8;
  const json::object* const object = schema.if_object();
  if (object == nullptr || depth > kMostDepth) return kUnknown;
  uint8_t out = kUnknown;
  if (const json::value* const type = object->if_contains("type")) {
    if (type->is_string()) return kind_named(type->get_string());
    if (type->is_array()) {
      for (const json::value& each : type->get_array())
        out |= each.is_string() ? kind_named(each.get_string()) : 0;
      return out;
    }
  }
  if (const json::value* const only = object->if_contains("const")) return kind_of(*only);
  if (const json::value* const values = object->if_contains("enum");
      values != nullptr && values->is_array()) {
    for (const json::value& each : values->get_array()) out |= kind_of(each);
    return out;
  }
  if (const json::value* const reference = object->if_contains("$ref");
      reference != nullptr && reference->is_string()) {
    const std::string_view text = reference->get_string();
    const json::value* const found = definition(root, text);
    return found == nullptr ? kUnknown : kinds_of(*found, root, depth + 1);
  }
  for (const char* const keyword : {"anyOf", "oneOf"}) {
    const json::value* const branches = object->if_contains(keyword);
    if (branches == nullptr || !branches->is_array()) continue;
    for (const json::value& branch : branches->get_array()) {
      const uint8_t own = kinds_of(branch, root, depth + 1);
      if (own == kUnknown) return kUnknown;
      out |= own;
    }
  }
  return out;
}

/// The kinds of a parameter; kUnknown: the tool's schema does not say.
uint8_t kinds_of_parameter(const json::object& schema, std::string_view name) {
  const json::value* const properties = schema.if_contains("properties");
  const json::object* const list = properties == nullptr ? nullptr : properties->if_object();
  const json::value* const own = list == nullptr ? nullptr : list->if_contains(name);
  return own == nullptr ? kUnknown : kinds_of(*own, schema, 0);
}

/// The text of a value as JSON: of one of `kinds` if it reads as that, else a string.
std::string value_text(std::string_view text, uint8_t kinds) {
  const std::string as_string = json::serialize(json::string(text));
  if (kinds == kUnknown || kinds == kString) return as_string;
  const std::string_view trimmed = trim(text);
  if ((kinds & (kInteger | kNumber)) != 0 && is_long_integer(trimmed)) return std::string(trimmed);
  const std::optional<json::value> literal = read_literal(trimmed);
  if (!literal) return as_string;
  const uint8_t kind = kind_of(*literal);
  const bool permitted = (kinds & kind) != 0 || (kind == kInteger && (kinds & kNumber) != 0);
  if (!permitted && (kinds & kString) != 0) return as_string;
  return literal->is_number() ? std::string(trimmed) : json::serialize(*literal);
}

class XmlCall final : public CallReader {
 public:
  explicit XmlCall(const Tools& tools) : tools_(tools) {}

  Step push(char c, CallSink& sink) override {
    text_ += c;
    if (c != '>') return begun_ || text_.size() <= 2 * kMaxCallName ? Step::kMore : Step::kBroken;
    if (!begun_) return take_name(sink);
    for (;;) {
      if (!in_value_) {
        if (text_.ends_with(kEnd)) {
          sink.arguments(empty_ ? "{}" : "}");
          return Step::kDone;
        }
        // No mark goes on behind a '>', so what stands before one is never looked at again.
        const std::string text = std::exchange(text_, {});
        const size_t at = text.find(kParameter);
        if (at == text.npos) return Step::kMore;
        key_ = text.substr(at + kParameter.size());
        key_.pop_back();
        in_value_ = true;
        return Step::kMore;
      }
      if (!take_value(sink)) return Step::kMore;
    }
  }

 private:
  static constexpr std::string_view kFunction = "<function=";
  static constexpr std::string_view kParameter = "<parameter=";
  static constexpr std::string_view kParameterEnd = "</parameter>";
  static constexpr std::string_view kEnd = "</function>";

  Step take_name(CallSink& sink) {
    const std::string_view head = trim(text_);
    if (!head.starts_with(kFunction)) return Step::kBroken;
    name_ = std::string(head.substr(kFunction.size(), head.size() - kFunction.size() - 1));
    if (!sink.begin(name_, "")) return Step::kBroken;
    begun_ = true;
    text_.clear();
    return Step::kMore;
  }

  /// Whether a mark has ended the value. A model may leave out the mark of its end.
  bool take_value(CallSink& sink) {
    const bool at_mark = text_.ends_with(kParameterEnd) || text_.ends_with(kEnd);
    const size_t next = last_mark();
    if (!at_mark && next == text_.npos) return false;
    const size_t end = text_.ends_with(kParameterEnd) ? text_.size() - kParameterEnd.size()
                       : at_mark                      ? text_.size() - kEnd.size()
                                                      : next;
    std::string_view value = std::string_view(text_).substr(0, end);
    if (value.starts_with('\n')) value.remove_prefix(1);
    if (value.ends_with('\n')) value.remove_suffix(1);
    write(value, sink);
    text_ = text_.ends_with(kParameterEnd) ? "" : text_.substr(end);
    in_value_ = false;
    return !text_.empty();
  }

  /// Where the mark of another parameter begins, if the text ends with one.
  size_t last_mark() const {
    const size_t from = text_.size() - std::min(text_.size(), 2 * kMaxCallName);
    const size_t at = std::string_view(text_).substr(from).rfind('<');
    if (at == std::string_view::npos) return at;
    return std::string_view(text_).substr(from + at).starts_with(kParameter) ? from + at
                                                                             : std::string_view::npos;
  }

  void write(std::string_view value, CallSink& sink) {
    const auto tool = tools_.find(name_);
    const uint8_t kinds = tool == tools_.end() ? kUnknown : kinds_of_parameter(tool->second, key_);
    sink.arguments((empty_ ? "{" : ", ") + json::serialize(json::string(key_)) + ": " +
                   value_text(value, kinds));
    empty_ = false;
  }

  const Tools& tools_;
  std::string text_;  // what is not yet understood
  std::string name_;
  std::string key_;
  bool begun_ = false;
  bool in_value_ = false;
  bool empty_ = true;
};

}  // namespace

std::unique_ptr<CallReader> read_xml_call(const Tools& tools) { return std::make_unique<XmlCall>(tools); }

}  // namespace quire::answer
