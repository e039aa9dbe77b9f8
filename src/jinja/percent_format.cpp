#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/format_spec.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// "..." % values
namespace quire::jinja {
namespace {

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
    const size_t begin = ++pos_;
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
    FormatSpec spec;
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
      if (pos_ - begin > 1) fail("unsupported format character '%'");
      put("%");
      return;
    }
    spec.align = left ? '<' : '>';
    convert(spec, zero && !left, keyed ? *keyed : next_value());
  }

  void convert(const FormatSpec& spec, bool zero, const Value& value) {
    std::string text;
    switch (spec.type) {
      case 's':
        text = to_str(sandbox_, value);
        break;
      case 'r':
      case 'a':
        append_repr(sandbox_, text, value);
        if (spec.type == 'a') text = ascii_escaped(text);
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

  void number(FormatSpec spec, bool zero, const Value& value) {
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
      FormatSpec digits;
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

}  // namespace

Value percent_format(Sandbox& sandbox, std::string_view format, const Value& args) {
  return Value::string(sandbox.copy(PercentFormatter(sandbox, format, args).run()));
}

}  // namespace quire::jinja
