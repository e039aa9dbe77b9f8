#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "jinja/value.h"

// Common parts of the two ways to format a value: "..." % values (percent_format.cpp) and
// "...".format(values) (brace_format.cpp). Failures throw as in functions.h.
namespace quire::jinja {

/// Python's format specification mini-language; printf's conversions are turned into it.
struct FormatSpec {
  std::string fill = " ";
  char align = '\0';  // < > ^ =
  char sign = '-';    // - + or a blank
  bool zero = false;  // fill with zeros, for numbers after the sign
  bool alternate = false;
  char group = '\0';  // , or _
  int64_t width = 0;
  int64_t precision = -1;
  char type = '\0';
};

/// Reads digits from text[i] on, and moves `i` past them; 0 if there are none.
int64_t read_number(std::string_view text, size_t& i);

bool is_float_type(char type);

/// Pads `sign` + `body`; by default numbers are right-aligned and text is left-aligned.
std::string fitted(Sandbox& sandbox, const FormatSpec& spec, std::string_view sign, std::string_view body,
                   bool is_number);

std::string format_int(Sandbox& sandbox, const FormatSpec& spec, Int value);
std::string format_float(Sandbox& sandbox, const FormatSpec& spec, double value);
std::string format_text(Sandbox& sandbox, const FormatSpec& spec, std::string_view text);

/// Python's format(value, spec).
std::string format_value(Sandbox& sandbox, const Value& value, std::string_view spec);

}  // namespace quire::jinja
