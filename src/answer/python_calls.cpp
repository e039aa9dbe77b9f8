// Calls written as in Python.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <optional>

#include <boost/json/serialize.hpp>

#include "answer/call_reader.h"
#include "base/error.h"
#include "base/trim.h"
#include "base/utf8.h"

namespace quire::answer {
namespace {

constexpr size_t kMaxDepth = 64;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' ||
         c == '.';
}

/// Whether all numbers in it are.
bool is_finite(const json::value& value) {
  if (value.is_double()) return std::isfinite(value.get_double());
  if (const auto* list = value.if_array()) return std::ranges::all_of(*list, is_finite);
  const auto* object = value.if_object();
  return object == nullptr ||
         std::ranges::all_of(*object, [](const auto& member) { return is_finite(member.value()); });
}

/// Reads one literal of Python: a string, number, True, False, None, list, tuple or dictionary. Every
/// function returns nothing if there is none.
class Literal {
 public:
  explicit Literal(std::string_view text) : rest_(text) {}

  std::optional<json::value> whole() {
    auto out = value(0);
    skip_space();
    return rest_.empty() ? std::move(out) : std::nullopt;
  }

 private:
  void skip_space() { rest_ = trim_start(rest_); }
  static std::string_view trim_start(std::string_view text) {
    while (!text.empty() && std::string_view(" \t\r\n").find(text.front()) != std::string_view::npos) {
      text.remove_prefix(1);
    }
    return text;
  }
  bool take(char c) {
    skip_space();
    if (!rest_.starts_with(c)) return false;
    rest_.remove_prefix(1);
    return true;
  }

  std::optional<json::value> value(size_t depth) {
    skip_space();
    if (rest_.empty() || depth > kMaxDepth) return std::nullopt;
    const char c = rest_.front();
    if (c == '"' || c == '\'') {
      auto text = string();
      // Python joins strings that stand beside each other.
      for (skip_space(); text && (rest_.starts_with('"') || rest_.starts_with('\'')); skip_space()) {
        const auto more = string();
        text = more ? std::optional(*text + *more) : std::nullopt;
      }
      return text ? std::optional(json::value(json::string(*text))) : std::nullopt;
    }
    if (c == '[' || c == '(') return list(c == '[' ? ']' : ')', depth);
    if (c == '{') return dictionary(depth);
    return word();
  }

  std::optional<json::value> list(char end, size_t depth) {
    rest_.remove_prefix(1);
    json::array out;
    bool comma = false;
    while (!take(end)) {
      auto item = value(depth + 1);
      if (!item) return std::nullopt;
      out.push_back(std::move(*item));
      comma = take(',');
      if (!comma && !rest_.starts_with(end)) return std::nullopt;
    }
    if (end == ')' && out.size() == 1 && !comma) return std::move(out.front());  // in brackets, no tuple
    return out;
  }

  std::optional<json::value> dictionary(size_t depth) {
    rest_.remove_prefix(1);
    json::object out;
    while (!take('}')) {
      skip_space();
      auto key = string();
      if (!key || !take(':')) return std::nullopt;
      auto item = value(depth + 1);
      if (!item) return std::nullopt;
      out[*key] = std::move(*item);
      if (!take(',') && !rest_.starts_with('}')) return std::nullopt;
    }
    return out;
  }

  std::optional<json::value> word() {
    size_t size = 0;
    while (size < rest_.size() && (is_name(rest_[size]) || rest_[size] == '+')) ++size;
    const std::string_view word = rest_.substr(0, size);
    rest_.remove_prefix(size);
    if (word == "True" || word == "true") return true;
    if (word == "False" || word == "false") return false;
    if (word == "None" || word == "null") return nullptr;
    try {
      json::value number = parse_json(word, "a literal");
      if (number.is_number() && is_finite(number)) return number;
    } catch (const Error&) {
    }
    return std::nullopt;
  }

  std::optional<std::string> string() {
    if (rest_.empty() || (rest_.front() != '"' && rest_.front() != '\'')) return std::nullopt;
    const char quote = rest_.front();
    rest_.remove_prefix(1);
    std::string out;
    while (!rest_.empty() && rest_.front() != quote) {
      const char c = rest_.front();
      rest_.remove_prefix(1);
      if (c != '\\') {
        out += c;
      } else if (!escape(out)) {
        return std::nullopt;
      }
    }
    if (rest_.empty()) return std::nullopt;
    rest_.remove_prefix(1);
    return out;
  }

  bool escape(std::string& out) {
    if (rest_.empty()) return false;
    const char c = rest_.front();
    rest_.remove_prefix(1);
    constexpr std::string_view kNames = "ntr0abfv\\'\"\n";
    constexpr std::string_view kMeant("\n\t\r\0\a\b\f\v\\'\"", 11);
    const size_t at = kNames.find(c);
    if (at < kMeant.size()) {
      out += kMeant[at];
    } else if (c == 'x' || c == 'u' || c == 'U') {
      const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
      uint32_t code = 0;
      const std::string_view hex = rest_.substr(0, digits);
      const auto [end, error] = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
      if (hex.size() < digits || error != std::errc() || end != hex.data() + digits) return false;
      if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) code = 0xFFFD;
      append_utf8(out, code);
      rest_.remove_prefix(digits);
    } else if (c != '\n') {  // Python keeps the backslash of what is no escape
      out += '\\';
      out += c;
    }
    return true;
  }

  std::string_view rest_;
};

class PythonCall final : public CallReader {
 public:
  Step push(char c, CallSink& sink) override {
    if (!begun_) return in_name(c, sink);
    if (quote_ != 0) {
      text_ += c;
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == quote_) {
        quote_ = 0;
      }
      return Step::kMore;
    }
    if (depth_ == 0 && (c == ',' || c == ')')) {
      if (!trim(text_).empty()) write(sink);
      text_.clear();
      if (c == ',') return Step::kMore;
      sink.arguments(empty_ ? "{}" : "}");
      return Step::kDone;
    }
    text_ += c;
    if (c == '"' || c == '\'') quote_ = c;
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
    return Step::kMore;
  }

 private:
  Step in_name(char c, CallSink& sink) {
    if (c == '(') {
      begun_ = sink.begin(text_, "");
      text_.clear();
      return begun_ ? Step::kMore : Step::kBroken;
    }
    text_ += c;
    return is_name(c) && text_.size() <= kMaxCallName ? Step::kMore : Step::kBroken;
  }

  /// name=value. What is no literal is passed on as a string.
  void write(CallSink& sink) {
    const size_t equals = text_.find('=');
    const std::string_view key = trim(std::string_view(text_).substr(0, equals));
    const std::string_view value =
        equals == text_.npos ? std::string_view() : trim(std::string_view(text_).substr(equals + 1));
    const std::string made =
        is_long_integer(value)
            ? std::string(value)
            : json::serialize(read_literal(value).value_or(json::value(json::string(value))));
    sink.arguments((empty_ ? "{" : ", ") + json::serialize(json::string(key)) + ": " + made);
    empty_ = false;
  }

  std::string text_;
  size_t depth_ = 0;
  char quote_ = 0;
  bool escaped_ = false;
  bool begun_ = false;
  bool empty_ = true;
};

}  // namespace

/// What is JSON is taken as JSON, which differs from Python in escapes.
std::optional<json::value> read_literal(std::string_view text) {
  try {
    json::value out = parse_json(text, "a literal", kMaxDepth);
    if (is_finite(out)) return out;
    return std::nullopt;
  } catch (const Error&) {
    return Literal(text).whole();
  }
}

bool is_long_integer(std::string_view text) {
  constexpr size_t kShort = 18;  // digits, which 64 bits always hold
  if (text.starts_with('-')) text.remove_prefix(1);
  return text.size() > kShort && text.front() != '0' && text.find_first_not_of("0123456789") == text.npos;
}

std::unique_ptr<CallReader> read_python_call() { return std::make_unique<PythonCall>(); }

}  // namespace quire::answer
