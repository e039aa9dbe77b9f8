#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "jinja/format_spec.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// "...".format(values)
namespace quire::jinja {
namespace {

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
        if (conversion == 'a') repr = ascii_escaped(repr);
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
      const bool automatic = name.empty();
      if (automatic ? manual_ : automatic_ > 0) {
        fail("cannot switch between automatic field numbering and manual field specification");
      }
      manual_ = !automatic;
      const size_t at = automatic ? automatic_++ : static_cast<size_t>(index(name));
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
  size_t automatic_ = 0;  // fields without a number, so far
  bool manual_ = false;   // there was one with a number
};

}  // namespace

std::string brace_format(Sandbox& sandbox, std::string_view format, const Args& args) {
  return BraceFormatter(sandbox, args).run(format, 1);
}

}  // namespace quire::jinja
