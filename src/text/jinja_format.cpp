#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "text/jinja_functions.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_ops.h"
#include "text/jinja_text.h"
#include "text/utf8.h"

// "..." % values and "...".format(values).
namespace quire::jinja {
namespace {

/// Python's format specification mini-language; printf's conversions are turned into it.
struct Spec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // - + or a blank
  bool alternate = false;
  char group = '\0';  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

constexpr int64_t kMaxPrecision = 1000;  // of numbers; beyond it there are only zeros

int64_t read_number(std::string_view text, size_t& i) {
  int64_t value = 0;
  while (i < text.size() && text[i] >= '0' && text[i] <= '9') {
    value = value * 10 + (text[i] - '0');
    if (value > INT32_MAX) fail("Too many decimal digits in format string");
    ++i;
  }
  return value;
}

Spec parse_spec(std::string_view text) {
  Spec spec;
  size_t i = 0;
  const auto at = [&](size_t k) { return k < text.size() ? text[k] : '\0'; };
  const auto is_align = [](char c) { return c == '<' || c == '>' || c == '^' || c == '='; };
  const size_t first = text.empty() ? 0 : utf8_at(text, 0).size;
  if (first > 0 && is_align(at(first))) {
    spec.fill = text.substr(0, first);
    spec.align = text[first];
    i = first + 1;
  } else if (is_align(at(0))) {
    spec.align = text[0];
    i = 1;
  }
  if (at(i) == '+' || at(i) == '-' || at(i) == ' ') spec.sign = text[i++];
  if (at(i) == '#') {
    spec.alternate = true;
    ++i;
  }
  if (at(i) == '0') {
    if (spec.align == '\0') {
      spec.fill = "0";
      spec.align = '=';
    }
    ++i;
  }
  spec.width = read_number(text, i);
  if (at(i) == ',' || at(i) == '_') spec.group = text[i++];
  if (at(i) == '.') {
    ++i;
    if (at(i) < '0' || at(i) > '9') fail("Format specifier missing precision");
    spec.precision = read_number(text, i);
  }
  if (i < text.size()) spec.type = text[i++];
  if (i < text.size()) fail("Invalid format specifier");
  return spec;
}

/// Pads `sign` + `body`; numbers go to the right, text to the left if nothing is said.
std::string fitted(Sandbox& sandbox, const Spec& spec, std::string_view sign, std::string_view body,
                   bool is_number) {
  const auto size = static_cast<int64_t>(char_count(sign) + char_count(body));
  std::string whole = std::string(sign) + std::string(body);
  const int64_t pad = spec.width - size;
  if (pad <= 0) return whole;
  const char32_t fill = utf8_at(spec.fill, 0).code;
  const char align = spec.align != '\0' ? spec.align : is_number ? '>' : '<';
  switch (align) {
    case '<':
      return padded(sandbox, whole, 0, pad, fill);
    case '^':
      return padded(sandbox, whole, pad / 2, pad - pad / 2, fill);
    case '=':
      return std::string(sign) + padded(sandbox, body, pad, 0, fill);
    default:
      return padded(sandbox, whole, pad, 0, fill);
  }
}

/// Separators into the digits before the point.
std::string grouped(const std::string& digits, char separator, size_t every) {
  const size_t end = std::min(digits.find_first_not_of("0123456789abcdefABCDEF"), digits.size());
  std::string out;
  for (size_t i = 0; i < end; ++i) {
    if (i > 0 && (end - i) % every == 0) out += separator;
    out += digits[i];
  }
  return out + digits.substr(end);
}

std::string format_int(Sandbox& sandbox, const Spec& spec, Int value) {
  const bool negative = value < 0;
  std::string digits;
  std::string prefix;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{:x}", negative ? -value : value);
      prefix = "0x";
      break;
    case 'X':
      digits = fmt::format("{:X}", negative ? -value : value);
      prefix = "0X";
      break;
    case 'o':
      digits = fmt::format("{:o}", negative ? -value : value);
      prefix = "0o";
      break;
    case 'b':
      digits = fmt::format("{:b}", negative ? -value : value);
      prefix = "0b";
      break;
    case 'c': {
      if (value < 0 || value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        fail("%c arg not in range(0x110000)");
      append_utf8(digits, static_cast<char32_t>(value));
      return fitted(sandbox, spec, "", digits, true);
    }
    default:
      digits = fmt::format("{}", negative ? -value : value);
      break;
  }
  if (spec.group != '\0') digits = grouped(digits, spec.group, prefix.empty() ? 3 : 4);
  std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  if (spec.alternate) sign += prefix;
  return fitted(sandbox, spec, sign, digits, true);
}

std::string format_float(Sandbox& sandbox, const Spec& spec, double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::abs(value);
  const auto precision = static_cast<int>(std::min(spec.precision < 0 ? 6 : spec.precision, kMaxPrecision));
  sandbox.step(2 * static_cast<uint64_t>(precision));
  std::string digits;
  switch (spec.type) {
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", magnitude, precision);
      break;
    case 'e':
      digits = fmt::format("{:.{}e}", magnitude, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", magnitude, precision);
      break;
    case 'g':
      digits = fmt::format("{:.{}g}", magnitude, precision);
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", magnitude, precision);
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", magnitude * 100, precision);
      break;
    default:
      digits = spec.precision < 0 ? float_repr(magnitude)
                                  : fmt::format("{:.{}g}", magnitude, std::max(precision, 1));
  }
  if (!std::isfinite(value)) digits = std::isnan(value) ? "nan" : "inf";
  if (spec.group != '\0') digits = grouped(digits, spec.group, 3);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return fitted(sandbox, spec, sign, digits, true);
}

std::string format_text(Sandbox& sandbox, const Spec& spec, std::string_view text) {
  sandbox.work(text.size());
  if (spec.precision >= 0) text = substring(text, 0, static_cast<size_t>(spec.precision));
  return fitted(sandbox, spec, "", text, false);
}

bool is_float_type(char type) { return std::string_view("eEfFgG%").find(type) != std::string_view::npos; }

/// format(value, spec)
std::string format_value(Sandbox& sandbox, const Value& value, std::string_view text) {
  if (text.empty() || !(value.is_string() || value.is_number())) {
    if (!text.empty() && !value.is_undefined()) {
      fail(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
    }
    return std::string(to_str(sandbox, value));
  }
  const Spec spec = parse_spec(text);
  const auto unknown = [&] {
    fail(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
  };
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') unknown();
    if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
    return format_text(sandbox, spec, value.as_string());
  }
  if (is_float_type(spec.type) || (value.is(Kind::kFloat) && spec.type == '\0')) {
    return format_float(sandbox, spec, value.to_double());
  }
  if (!value.is_integral() || std::string_view("bcdoxXn").find(spec.type) == std::string_view::npos) {
    if (!(value.is_integral() && spec.type == '\0')) unknown();
  }
  return format_int(sandbox, spec, value.as_int());
}

class PercentFormatter {
 public:
  PercentFormatter(Sandbox& sandbox, std::string_view format, const Value& args)
      : sandbox_(sandbox), format_(format), args_(args) {}

  std::string run() {
    for (pos_ = 0; pos_ < format_.size();) {
      const size_t percent = std::min(format_.find('%', pos_), format_.size());
      put(format_.substr(pos_, percent - pos_));
      pos_ = percent;
      if (pos_ < format_.size()) directive();
    }
    // What has subscripts may hold more than was asked for.
    const bool is_mapping = args_.is(Kind::kDict) || args_.is(Kind::kList) || args_.is(Kind::kRange);
    const bool takes_all = args_.is(Kind::kTuple) ? used_ == args_.items().size()
                                                  : used_ > 0 || is_mapping || args_.is_undefined();
    if (!takes_all) fail("not all arguments converted during string formatting");
    return std::move(out_);
  }

 private:
  void put(std::string_view text) {
    sandbox_.limit_string(out_.size() + text.size());
    sandbox_.step();
    sandbox_.work(text.size());
    out_ += text;
  }

  char peek() const {
    if (pos_ >= format_.size()) fail("incomplete format");
    return format_[pos_];
  }

  Value next_value() {
    if (args_.is(Kind::kTuple)) {
      if (used_ < args_.items().size()) return args_.items()[used_++];
    } else if (used_ == 0) {
      ++used_;
      return args_;
    }
    fail("not enough arguments for format string");
  }

  int64_t star_or_number() {
    if (peek() != '*') return read_number(format_, pos_);
    ++pos_;
    return std::clamp<int64_t>(to_index(next_value(), "* wants int"), INT32_MIN, INT32_MAX);
  }

  void directive() {
    ++pos_;
    std::optional<Value> keyed;
    if (peek() == '(') {
      const size_t close = format_.find(')', pos_);
      if (close == std::string_view::npos) fail("incomplete format key");
      if (!args_.is(Kind::kDict)) fail("format requires a mapping");
      const std::string_view key = format_.substr(pos_ + 1, close - pos_ - 1);
      const Value* found = args_.as<Dict>().find(sandbox_, key);
      if (found == nullptr) fail(string_repr(key));
      keyed = *found;
      pos_ = close + 1;
    }
    Spec spec;
    bool left = false;
    bool zero = false;
    for (;; ++pos_) {
      const char c = peek();
      if (c == '-') {
        left = true;
      } else if (c == '0') {
        zero = true;
      } else if (c == '+' || (c == ' ' && spec.sign != '+')) {
        spec.sign = c;
      } else if (c == '#') {
        spec.alternate = true;
      } else if (c != ' ') {
        break;
      }
    }
    spec.width = star_or_number();
    if (spec.width < 0) {
      left = true;
      spec.width = -spec.width;
    }
    if (peek() == '.') {
      ++pos_;
      spec.precision = std::max<int64_t>(star_or_number(), 0);
    }
    while (peek() == 'l' || peek() == 'h' || peek() == 'L') ++pos_;
    spec.type = format_[pos_++];
    if (spec.type == '%') {
      put("%");
      return;
    }
    spec.align = left ? '<' : '>';
    convert(spec, zero && !left, keyed ? *keyed : next_value());
  }

  void convert(const Spec& spec, bool zero, const Value& value) {
    std::string text;
    switch (spec.type) {
      case 's':
        text = to_str(sandbox_, value);
        break;
      case 'r':
      case 'a':
        append_repr(sandbox_, text, value);
        break;
      case 'c':
        if (value.is_string()) {
          if (!is_one_char(value.as_string())) fail("%c requires int or char");
          text = value.as_string();
          break;
        }
        [[fallthrough]];
      default:
        number(spec, zero, value);
        return;
    }
    put(format_text(sandbox_, spec, text));
  }

  void number(Spec spec, bool zero, const Value& value) {
    if (value.is_undefined()) fail_undefined(value);
    if (zero) {
      spec.fill = "0";
      spec.align = '=';
    }
    const bool whole = std::string_view("diuxXoc").find(spec.type) != std::string_view::npos;
    if (!whole && !(is_float_type(spec.type) && spec.type != '%')) {
      fail(fmt::format("unsupported format character '{}'", spec.type));
    }
    if (!value.is_number() || (value.is(Kind::kFloat) && whole &&
                               std::string_view("xXoc").find(spec.type) != std::string_view::npos)) {
      fail(fmt::format("%{} format: a real number is required, not {}", spec.type, type_name(value)));
    }
    if (!whole) {
      put(format_float(sandbox_, spec, value.to_double()));
      return;
    }
    Int integer = value.is_integral() ? value.as_int() : 0;
    if (value.is(Kind::kFloat)) {
      if (!(std::abs(value.as_float()) < 1e38)) fail("cannot convert float to integer");
      integer = static_cast<Int>(value.as_float());
    }
    if (spec.type != 'x' && spec.type != 'X' && spec.type != 'o' && spec.type != 'c') spec.type = 'd';
    if (spec.precision > 0 && spec.type != 'c') {
      // The precision of an integer is its least number of digits.
      Spec digits;
      digits.type = spec.type;
      digits.width = spec.precision;
      digits.fill = "0";
      digits.align = '=';
      const std::string body = format_int(sandbox_, digits, integer < 0 ? -integer : integer);
      const std::string sign = integer < 0 ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
      put(fitted(sandbox_, spec, sign, body, true));
      return;
    }
    put(format_int(sandbox_, spec, integer));
  }

  Sandbox& sandbox_;
  std::string_view format_;
  const Value& args_;
  size_t pos_ = 0;
  size_t used_ = 0;
  std::string out_;
};

class BraceFormatter {
 public:
  BraceFormatter(Sandbox& sandbox, const Args& args) : sandbox_(sandbox), args_(args) {}

  std::string run(std::string_view format, int depth) {
    if (depth > 2) fail("Max string recursion exceeded");
    std::string out;
    const auto put = [&](std::string_view text) {
      sandbox_.limit_string(out.size() + text.size());
      sandbox_.step();
      sandbox_.work(text.size());
      out += text;
    };
    for (size_t i = 0; i < format.size();) {
      const size_t brace = std::min(format.find_first_of("{}", i), format.size());
      put(format.substr(i, brace - i));
      i = brace;
      if (i == format.size()) break;
      if (i + 1 < format.size() && format[i + 1] == format[i]) {
        put(format.substr(i, 1));
        i += 2;
      } else if (format[i] == '}') {
        fail("Single '}' encountered in format string");
      } else {
        const size_t end = closing(format, i);
        put(field(format.substr(i + 1, end - i - 1), depth));
        i = end + 1;
      }
    }
    return out;
  }

 private:
  static size_t closing(std::string_view format, size_t open) {
    size_t nested = 0;
    for (size_t i = open; i < format.size(); ++i) {
      if (format[i] == '{') ++nested;
      if (format[i] == '}' && --nested == 0) return i;
    }
    fail("expected '}' before end of string");
  }

  std::string field(std::string_view text, int depth) {
    size_t end = 0;
    for (bool bracket = false; end < text.size(); ++end) {
      if (text[end] == '[') bracket = true;
      if (text[end] == ']') bracket = false;
      if (!bracket && (text[end] == '!' || text[end] == ':')) break;
    }
    Value value = lookup(text.substr(0, end));
    std::string_view rest = text.substr(end);
    if (rest.starts_with('!')) {
      const char conversion = rest.size() > 1 ? rest[1] : '\0';
      if (conversion == 's') {
        value = Value::string(to_str(sandbox_, value));
      } else if (conversion == 'r' || conversion == 'a') {
        std::string repr;
        append_repr(sandbox_, repr, value);
        value = Value::string(sandbox_.copy(repr));
      } else {
        fail("Unknown conversion specifier");
      }
      rest.remove_prefix(2);
      if (!rest.empty() && rest[0] != ':') fail("expected ':' after conversion specifier");
    }
    const std::string spec = rest.empty() ? std::string() : run(rest.substr(1), depth + 1);
    return format_value(sandbox_, value, spec);
  }

  Value lookup(std::string_view name) {
    const size_t first = std::min(name.find_first_of(".["), name.size());
    Value value = argument(name.substr(0, first));
    std::string_view rest = name.substr(first);
    while (!rest.empty()) {
      if (rest[0] == '.') {
        const size_t end = std::min(rest.find_first_of(".[", 1), rest.size());
        value = get_attribute(sandbox_, value, rest.substr(1, end - 1));
        rest.remove_prefix(end);
      } else {
        const size_t close = rest.find(']');
        if (rest[0] != '[' || close == std::string_view::npos) fail("Missing ']' in format string");
        const std::string_view key = rest.substr(1, close - 1);
        value = get_item(sandbox_, value, is_index(key) ? Value::integer(index(key)) : Value::string(key));
        rest.remove_prefix(close + 1);
      }
    }
    return value;
  }

  static bool is_index(std::string_view text) {
    return !text.empty() && text.size() < 18 &&
           text.find_first_not_of("0123456789") == std::string_view::npos;
  }
  static int64_t index(std::string_view text) {
    size_t i = 0;
    return read_number(text, i);
  }

  Value argument(std::string_view name) {
    if (name.empty() || is_index(name)) {
      const size_t at = name.empty() ? automatic_++ : static_cast<size_t>(index(name));
      if (at >= args_.positional.size()) {
        fail(fmt::format("Replacement index {} out of range for positional args tuple", at));
      }
      return args_.positional[at];
    }
    for (const Named& each : args_.named) {
      sandbox_.step();
      if (each.name == name) return each.value;
    }
    fail(string_repr(name));
  }

  Sandbox& sandbox_;
  const Args& args_;
  size_t automatic_ = 0;
};

}  // namespace

Value percent_format(Sandbox& sandbox, std::string_view format, const Value& args) {
  return Value::string(sandbox.copy(PercentFormatter(sandbox, format, args).run()));
}

std::string brace_format(Sandbox& sandbox, std::string_view format, const Args& args) {
  return BraceFormatter(sandbox, args).run(format, 1);
}

}  // namespace quire::jinja
