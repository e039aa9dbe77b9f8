#include "jinja/format_spec.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

namespace quire::jinja {
namespace {

constexpr int64_t kMaxPrecision = 1000;  // of numbers; beyond it there are only zeros

FormatSpec parse_spec(std::string_view text) {
  FormatSpec spec;
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
      spec.zero = true;
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

/// As 'g', but a number without an exponent has a digit behind its point, which counts.
std::string short_form(double value, int precision) {
  std::string out = fmt::format("{:.{}g}", value, precision);
  if (out.find_first_of(".e") != std::string::npos) return out;
  if (out.size() < static_cast<size_t>(precision)) return out + ".0";
  out = fmt::format("{:.{}e}", value, precision - 1);
  const size_t exponent = out.find('e');
  const size_t point = out.find('.');
  if (point == std::string::npos) return out;
  const size_t end = out.find_last_not_of('0', exponent - 1);
  return out.erase(end == point ? point : end + 1, exponent - (end == point ? point : end + 1));
}

}  // namespace

int64_t read_number(std::string_view text, size_t& i) {
  int64_t value = 0;
  while (i < text.size() && text[i] >= '0' && text[i] <= '9') {
    value = value * 10 + (text[i] - '0');
    if (value > INT32_MAX) fail("Too many decimal digits in format string");
    ++i;
  }
  return value;
}

std::string fitted(Sandbox& sandbox, const FormatSpec& spec, std::string_view sign, std::string_view body,
                   bool is_number) {
  const auto size = static_cast<int64_t>(count_utf8(sign) + count_utf8(body));
  std::string whole = std::string(sign) + std::string(body);
  const int64_t pad = spec.width - size;
  if (pad <= 0) return whole;
  const char32_t fill = utf8_at(spec.fill, 0).code;
  const char align = spec.align != '\0' ? spec.align : !is_number ? '<' : spec.zero ? '=' : '>';
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

std::string format_int(Sandbox& sandbox, const FormatSpec& spec, Int value) {
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

std::string format_float(Sandbox& sandbox, const FormatSpec& spec, double value) {
  const bool negative = std::signbit(value) && !std::isnan(value);
  const double magnitude = std::abs(value);
  const auto precision = static_cast<int>(std::min(spec.precision < 0 ? 6 : spec.precision, kMaxPrecision));
  sandbox.step(2 * static_cast<uint64_t>(precision));
  // `alternate` keeps the point, and the zeros behind it.
  const auto as = [&](char type, double number, int places) {
    const std::string form = fmt::format("{{:{}.{}{}}}", spec.alternate ? "#" : "", places, type);
    return fmt::format(fmt::runtime(form), number);
  };
  std::string digits;
  if (spec.type == '%') {
    digits = as('f', magnitude * 100, precision) + '%';
  } else if (spec.type != '\0') {
    digits = as(spec.type, magnitude, precision);
  } else {
    digits = spec.precision < 0 ? float_repr(magnitude) : short_form(magnitude, std::max(precision, 1));
  }
  if (!std::isfinite(value)) {
    digits = std::isnan(value) ? "nan" : "inf";
    if (spec.type == '%') digits += '%';
  }
  if (spec.group != '\0') digits = grouped(digits, spec.group, 3);
  const std::string sign = negative ? "-" : spec.sign == '-' ? "" : std::string(1, spec.sign);
  return fitted(sandbox, spec, sign, digits, true);
}

std::string format_text(Sandbox& sandbox, const FormatSpec& spec, std::string_view text) {
  sandbox.work(text.size());
  if (spec.precision >= 0) text = substring(text, 0, static_cast<size_t>(spec.precision));
  return fitted(sandbox, spec, "", text, false);
}

bool is_float_type(char type) { return std::string_view("eEfFgG%").find(type) != std::string_view::npos; }

std::string format_value(Sandbox& sandbox, const Value& value, std::string_view text) {
  if (text.empty() || !(value.is_string() || value.is_number())) {
    if (!text.empty()) {
      fail(fmt::format("unsupported format string passed to {}.__format__", type_name(value)));
    }
    return std::string(to_str(sandbox, value));
  }
  const FormatSpec spec = parse_spec(text);
  const auto unknown = [&] {
    fail(fmt::format("Unknown format code '{}' for object of type '{}'", spec.type, type_name(value)));
  };
  if (value.is_string()) {
    if (spec.type != '\0' && spec.type != 's') unknown();
    if (spec.sign != '-') fail("Sign not allowed in string format specifier");
    if (spec.alternate) fail("Alternate form (#) not allowed in string format specifier");
    if (spec.group != '\0') fail(fmt::format("Cannot specify '{}' with 's'.", spec.group));
    if (spec.align == '=') fail("'=' alignment not allowed in string format specifier");
    return format_text(sandbox, spec, value.as_string());
  }
  if (is_float_type(spec.type) || (value.is(Kind::kFloat) && spec.type == '\0')) {
    return format_float(sandbox, spec, value.to_double());
  }
  if (!value.is_integral() || std::string_view("bcdoxXn").find(spec.type) == std::string_view::npos) {
    if (!(value.is_integral() && spec.type == '\0')) unknown();
  }
  if (spec.precision >= 0) fail("Precision not allowed in integer format specifier");
  return format_int(sandbox, spec, value.as_int());
}

}  // namespace quire::jinja
