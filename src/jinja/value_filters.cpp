#include <algorithm>
#include <charconv>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// Filters on single values: numbers, JSON, defaults.
namespace quire::jinja {
namespace {

Value filter_default(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("default", args, {"default_value", "boolean"});
  const bool absent = self.is_undefined() || (bound.flag(1, false) && !truthy(self));
  return absent ? bound.or_else(0, Value::string("")) : self;
}

Value filter_tojson(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("tojson", args, {"ensure_ascii", "indent", "separators", "sort_keys"});
  Sandbox& sandbox = interpreter.sandbox();
  JsonStyle style;
  style.ensure_ascii = bound.flag(0, false);
  style.sort_keys = bound.flag(3, false);
  if (bound.is_given(1)) {
    style.item_separator = ",";
    if (bound[1].is_string()) {
      style.indent = std::string(bound[1].as_string());
    } else {
      const int64_t width = std::max<int64_t>(bound.integer(1, 0), 0);
      sandbox.need_string(static_cast<uint64_t>(width));
      style.indent = std::string(static_cast<size_t>(width), ' ');
    }
  }
  if (bound.is_given(2)) {
    const std::vector<Value> parts = collect(sandbox, bound[2]);
    if (parts.size() != 2 || !parts[0].is_string() || !parts[1].is_string()) {
      fail("tojson: separators are two strings");
    }
    style.item_separator = parts[0].as_string();
    style.key_separator = parts[1].as_string();
  }
  return Value::string(sandbox.copy(to_json(sandbox, self, style)));
}

int digit_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char small = static_cast<char>(c | 0x20);
  return small >= 'a' && small <= 'z' ? small - 'a' + 10 : 99;
}

/// Without white space at the ends; the decimal digits of all scripts as ASCII's, as int() and float() take
/// them.
std::string plain_digits(std::string_view text) {
  text = strip(text, nullptr, true, true);
  std::string out;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    const int digit = c.size == 1 ? -1 : decimal_value(c.code);
    if (digit >= 0) {
      out += static_cast<char>('0' + digit);
    } else {
      out += text.substr(i, c.size);
    }
    i += c.size;
  }
  return out;
}

/// int(text, base); no value where Python raises ValueError.
std::optional<Int> parse_integer(std::string_view given, int64_t base) {
  const std::string digits = plain_digits(given);
  std::string_view text = digits;
  bool negative = false;
  if (text.starts_with('-') || text.starts_with('+')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int64_t prefixed = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefixed != 0 && (base == prefixed || base == 0)) {
      base = prefixed;
      text.remove_prefix(2);
      if (text.starts_with('_')) text.remove_prefix(1);
    }
  }
  if (base == 0) {
    // Python's literals: no leading zeros but in zero itself.
    if (text.starts_with('0') && text.find_first_not_of("0_") != std::string_view::npos) return std::nullopt;
    base = 10;
  }
  if (base < 2 || base > 36 || text.empty()) return std::nullopt;
  Int value = 0;
  bool after_digit = false;
  for (const char c : text) {
    if (c == '_' && after_digit) {
      after_digit = false;
      continue;
    }
    if (digit_of(c) >= base) return std::nullopt;
    if (__builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit_of(c)}, &value)) {
      fail("integer too large");
    }
    after_digit = true;
  }
  if (!after_digit) return std::nullopt;
  return negative ? -value : value;
}

}  // namespace

std::optional<double> parse_float(std::string_view given) {
  const std::string text = plain_digits(given);
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto is_digit_at = [&](size_t k) { return k < text.size() && digit_of(text[k]) < 10; };
    if (text[i] == '_') {
      if (i == 0 || !is_digit_at(i - 1) || !is_digit_at(i + 1)) return std::nullopt;
    } else {
      plain += text[i];
    }
  }
  std::string_view rest = plain;
  bool negative = false;
  if (rest.starts_with('-') || rest.starts_with('+')) {
    negative = rest[0] == '-';
    rest.remove_prefix(1);
  }
  const std::string word = lower(rest);
  if (word == "inf" || word == "infinity") return negative ? -HUGE_VAL : HUGE_VAL;
  if (word == "nan") return std::nan("");
  if (rest.empty() || !(digit_of(rest[0]) < 10 || rest[0] == '.')) return std::nullopt;
  double value = 0;
  const auto result = std::from_chars(rest.data(), rest.data() + rest.size(), value);
  if (result.ptr != rest.data() + rest.size() || result.ec == std::errc::invalid_argument)
    return std::nullopt;
  if (result.ec == std::errc::result_out_of_range)
    value = word.find("e-") != std::string::npos ? 0.0 : HUGE_VAL;
  return negative ? -value : value;
}

namespace {

std::optional<Int> truncated(double value) {
  if (std::isnan(value)) return std::nullopt;
  if (std::isinf(value)) fail("cannot convert float infinity to integer");
  if (std::abs(value) > 1e38) fail("integer too large");
  return static_cast<Int>(value);
}

Value filter_int(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("int", args, {"default", "base"});
  const Value otherwise = bound.or_else(0, Value::integer(0));
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_integral()) return Value::integer(self.as_int());
  std::optional<Int> out;
  if (self.is(Kind::kFloat)) {
    out = truncated(self.as_float());
  } else if (self.is_string()) {
    interpreter.sandbox().char_work(4 * self.as_string().size());
    out = parse_integer(self.as_string(), bound.integer(1, 10));
    if (!out) {
      const std::optional<double> value = parse_float(self.as_string());
      if (value && std::isfinite(*value)) out = truncated(*value);
    }
  }
  return out ? Value::integer(*out) : otherwise;
}

Value filter_float(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("float", args, {"default"});
  if (self.is_undefined()) fail_undefined(self);
  if (self.is_number()) return Value::real(self.to_double());
  if (self.is_string()) {
    interpreter.sandbox().char_work(4 * self.as_string().size());
    if (const std::optional<double> value = parse_float(self.as_string())) return Value::real(*value);
  }
  return bound.or_else(0, Value::real(0.0));
}

Value filter_abs(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("abs", args, {});
  if (self.is(Kind::kFloat)) return Value::real(std::abs(self.as_float()));
  if (self.is_integral()) return self.as_int() < 0 ? negate(self) : plus(self);
  if (self.is_undefined()) fail_undefined(self);
  fail(fmt::format("bad operand type for abs(): '{}'", type_name(self)));
}

/// round(value, places) as CPython does it: the decimal of so many places nearest to the exact binary value.
double round_common(double value, int64_t places) {
  if (!std::isfinite(value) || places > 323) return value;
  if (places < -308) return 0.0 * value;
  if (places >= 0) return std::stod(fmt::format("{:.{}f}", value, places));
  const double scale = std::pow(10.0, static_cast<double>(-places));
  return std::nearbyint(value / scale) * scale;
}

Int round_integer(Int value, int64_t places) {
  if (places >= 0) return value;
  if (places < -37) return 0;
  Int scale = 1;
  for (int64_t i = places; i < 0; ++i) scale *= 10;
  Int rest = value % scale;
  if (rest < 0) rest += scale;
  Int down = value - rest;
  const bool odd = (down / scale) % 2 != 0;
  if (rest * 2 > scale || (rest * 2 == scale && odd)) down += scale;
  return down;
}

Value filter_round(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("round", args, {"precision", "method"});
  const std::string_view method = bound.has(1) ? bound.string(1) : "common";
  if (method != "common" && method != "ceil" && method != "floor") {
    fail("method must be common, ceil or floor");
  }
  if (self.is_undefined()) fail_undefined(self);
  if (!self.is_number()) fail(fmt::format("type {} doesn't define __round__ method", type_name(self)));
  const int64_t places = bound.integer(0, 0);
  if (method == "common") {
    if (self.is_integral()) return Value::integer(round_integer(self.as_int(), places));
    return Value::real(round_common(self.as_float(), places));
  }
  const double scale = std::pow(10.0, static_cast<double>(places));
  const double scaled = self.to_double() * scale;
  if (!std::isfinite(scaled)) fail("cannot convert float infinity to integer");
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale + 0.0);
}

Value filter_attr(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("attr", args, {"name"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view name = bound.string(0);
  if (!self.is_undefined()) {
    if (python_attribute(sandbox, self, name)) return get_attribute(sandbox, self, name);
    return Value::undefined(sandbox.make<Missing>(std::string_view{}, type_name(self), name));
  }
  fail_undefined(self);
}

constexpr NamedFunction kValueFilters[] = {
    {"abs", filter_abs},     {"attr", filter_attr}, {"d", filter_default},   {"default", filter_default},
    {"float", filter_float}, {"int", filter_int},   {"round", filter_round}, {"tojson", filter_tojson},
};

}  // namespace

std::span<const NamedFunction> value_filters() { return kValueFilters; }

}  // namespace quire::jinja
