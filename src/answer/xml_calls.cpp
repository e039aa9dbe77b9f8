// Qwen3-Coder's calls.
#include <algorithm>
#include <optional>

#include <boost/json/serialize.hpp>

#include "answer/call_reader.h"
#include "base/error.h"
#include "base/trim.h"

namespace quire::answer {
namespace {

constexpr size_t kMaxParameterDepth = 64;

/// Whether a property's schema permits nothing but strings, as far as its type says.
bool is_string(const json::object& schema, std::string_view property) {
  const json::value* properties = schema.if_contains("properties");
  const json::value* own = properties != nullptr && properties->is_object()
                               ? properties->get_object().if_contains(property)
                               : nullptr;
  const json::value* type =
      own != nullptr && own->is_object() ? own->get_object().if_contains("type") : nullptr;
  if (type != nullptr) return *type == "string";
  return own == nullptr || !own->is_object() || !own->get_object().contains("anyOf");
}

std::optional<json::value> literal_of(std::string_view text) {
  if (text == "True") return true;
  if (text == "False") return false;
  if (text == "None") return nullptr;
  try {
    return parse_json(text, "a parameter", kMaxParameterDepth);
  } catch (const Error&) {
    return std::nullopt;
  }
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
        const std::string_view rest = trim(text_);
        if (rest.ends_with(kEnd)) {
          sink.arguments(empty_ ? "{}" : "}");
          return Step::kDone;
        }
        const size_t at = rest.find(kParameter);
        if (at == rest.npos) return Step::kMore;
        key_ = std::string(rest.substr(at + kParameter.size()));
        key_.pop_back();
        text_.clear();
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
    std::optional<json::value> made;
    const auto tool = tools_.find(name_);
    if (tool != tools_.end() && !is_string(tool->second, key_)) made = literal_of(trim(value));
    if (!made) made = json::string(value);
    sink.arguments((empty_ ? "{" : ", ") + json::serialize(json::string(key_)) + ": " +
                   json::serialize(*made));
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
