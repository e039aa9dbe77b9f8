// Calls whose arguments are JSON as it stands.
#include <optional>

#include "answer/call_reader.h"
#include "base/error.h"
#include "base/trim.h"

namespace quire::answer {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Follows one JSON value to its end, without a look at what it holds.
class ValueEnd {
 public:
  enum class At : uint8_t { kInside, kEnd, kBehind };  // kBehind: it ended before this character

  void begin() { *this = {}; }
  bool begun() const { return kind_ != 0; }
  char kind() const { return kind_; }  // its first character

  At push(char c) {
    if (kind_ == 0) {
      kind_ = c;
      in_string_ = c == '"';
      depth_ = c == '{' || c == '[' ? 1 : 0;
      return At::kInside;
    }
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        return depth_ == 0 ? At::kEnd : At::kInside;
      }
      return At::kInside;
    }
    if (depth_ == 0) return c == ',' || c == '}' || c == ']' || is_space(c) ? At::kBehind : At::kInside;
    if (c == '"') in_string_ = true;
    if (c == '{' || c == '[') ++depth_;
    if (c == '}' || c == ']') --depth_;
    return depth_ == 0 ? At::kEnd : At::kInside;
  }

 private:
  char kind_ = 0;
  bool in_string_ = false;
  bool escaped_ = false;
  size_t depth_ = 0;
};

/// The text of a JSON string; nothing if it is none.
std::optional<std::string> string_of(std::string_view json) {
  try {
    const json::value value = parse_json(json, "a call");
    if (const auto* text = value.if_string()) return std::string(*text);
  } catch (const Error&) {
  }
  return std::nullopt;
}

class JsonCall final : public CallReader {
 public:
  Step push(char c, CallSink& sink) override {
    switch (at_) {
      case At::kOpen:
        at_ = At::kKey;
        return c == '{' ? Step::kMore : Step::kBroken;
      case At::kKey:
        return before_key(c, sink);
      case At::kInKey:
        key_ += c;
        if (value_.push(c) == ValueEnd::At::kEnd) at_ = At::kColon;
        return key_.size() > kMaxCallName ? Step::kBroken : Step::kMore;
      case At::kColon:
        if (c == ':') begin_value();
        return c == ':' || is_space(c) ? Step::kMore : Step::kBroken;
      case At::kValue:
        return in_value(c, sink);
    }
    return Step::kBroken;
  }

 private:
  enum class At : uint8_t { kOpen, kKey, kInKey, kColon, kValue };

  Step before_key(char c, CallSink& sink) {
    if (is_space(c) || c == ',') return Step::kMore;
    if (c == '}') {
      if (nested_ > 0) {
        --nested_;
        return Step::kMore;
      }
      if (!begun_) return Step::kBroken;
      if (!has_arguments_) sink.arguments("{}");
      return Step::kDone;
    }
    if (c != '"') return Step::kBroken;
    key_ = c;
    value_.begin();
    value_.push(c);
    at_ = At::kInKey;
    return Step::kMore;
  }

  void begin_value() {
    at_ = At::kValue;
    value_.begin();
    text_.clear();
  }

  bool is_arguments() const {
    return !has_arguments_ && (key_ == "\"arguments\"" || key_ == "\"parameters\"");
  }

  Step in_value(char c, CallSink& sink) {
    if (!value_.begun()) {
      if (is_space(c)) return Step::kMore;
      if (c == '{' && key_ == "\"function\"" && nested_ == 0) {
        ++nested_;
        at_ = At::kKey;
        return Step::kMore;
      }
    }
    const ValueEnd::At at = value_.push(c);
    if (at != ValueEnd::At::kBehind) {
      // Arguments are passed on as they come, once there is a call that they belong to.
      if (begun_ && is_arguments() && value_.kind() == '{') {
        sink.arguments({&c, 1});
      } else {
        text_ += c;
      }
    }
    if (at == ValueEnd::At::kInside) return Step::kMore;
    at_ = At::kKey;
    if (!end_value(sink)) return Step::kBroken;
    return at == ValueEnd::At::kBehind ? before_key(c, sink) : Step::kMore;
  }

  /// False if this is no call.
  bool end_value(CallSink& sink) {
    if (is_arguments()) {
      has_arguments_ = true;
      if (value_.kind() == '"') {
        text_ = string_of(text_).value_or("");
      } else if (text_ == "null") {
        text_ = "{}";
      }
      if (begun_) {
        sink.arguments(text_);
      } else {
        early_ = std::move(text_);
      }
    } else if (!begun_ && (key_ == "\"name\"" || key_ == "\"function\"")) {
      const auto name = string_of(text_);
      if (!name || !sink.begin(*name, id_)) return false;
      begun_ = true;
      sink.arguments(early_);
    } else if (key_ == "\"id\"" && text_.size() <= kMaxCallName) {
      id_ = string_of(text_).value_or("");
    }
    return true;
  }

  At at_ = At::kOpen;
  ValueEnd value_;
  std::string key_;   // with its quotation marks
  std::string text_;  // of the value
  std::string id_;
  std::string early_;  // arguments that came before the name
  size_t nested_ = 0;
  bool begun_ = false;
  bool has_arguments_ = false;
};

/// Name and id from what stands before the arguments: "f", "f[ARGS]", "f[CALL_ID]x[ARGS]" (Mistral);
/// "f<｜tool▁sep｜>", "function<｜tool▁sep｜>f\n```json\n" (DeepSeek).
struct Head {
  std::string_view name;
  std::string_view id;
};

Head read_head(std::string_view text) {
  constexpr std::string_view kSeparator = "<｜tool▁sep｜>";
  constexpr std::string_view kId = "[CALL_ID]";
  constexpr std::string_view kArguments = "[ARGS]";
  Head out;
  if (const size_t at = text.find(kSeparator); at != text.npos) {
    const std::string_view behind = trim(text.substr(at + kSeparator.size()));
    out.name = behind.empty() ? text.substr(0, at) : behind.substr(0, behind.find('\n'));
  } else {
    if (const size_t end = text.find(kArguments); end != text.npos) text = text.substr(0, end);
    const size_t id = text.find(kId);
    if (id != text.npos) out.id = trim(text.substr(id + kId.size()));
    out.name = text.substr(0, id);
  }
  out.name = trim(out.name);
  return out;
}

class NamedCall final : public CallReader {
 public:
  Step push(char c, CallSink& sink) override {
    if (!begun_ && c != '{') {
      head_ += c;
      return head_.size() > 2 * kMaxCallName ? Step::kBroken : Step::kMore;
    }
    if (!begun_) {
      const Head head = read_head(head_);
      if (!sink.begin(head.name, head.id)) return Step::kBroken;
      begun_ = true;
    }
    const ValueEnd::At at = value_.push(c);
    sink.arguments({&c, 1});
    return at == ValueEnd::At::kEnd ? Step::kDone : Step::kMore;
  }

 private:
  std::string head_;
  ValueEnd value_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<CallReader> read_json_call() { return std::make_unique<JsonCall>(); }
std::unique_ptr<CallReader> read_named_call() { return std::make_unique<NamedCall>(); }

}  // namespace quire::answer
