#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// Filters on text.
namespace quire::jinja {
namespace {

Value filtered(Interpreter& interpreter, std::string_view text, const Value& like) {
  return Value::string(interpreter.sandbox().copy(text), like.is_markup());
}

template <std::string (*Change)(std::string_view)>
Value change_filter(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("filter", args, {});
  const std::string_view text = to_str(interpreter.sandbox(), self);
  interpreter.sandbox().char_work(text.size());
  return filtered(interpreter, Change(text), self);
}

/// Jinja's own: words begin after blanks, hyphens and opening brackets.
std::string title_words(std::string_view text) {
  std::string out;
  size_t begin = 0;
  const auto word = [&](size_t end) {
    if (begin == end) return;
    const std::string_view of = text.substr(begin, end - begin);
    const size_t first = utf8_at(of, 0).size;
    out += upper(of.substr(0, first));
    out += lower(of.substr(first));
  };
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (is_python_space(c.code) ||
        (c.code < 0x80 && std::string_view("-({[<").find(text[i]) != std::string_view::npos)) {
      word(i);
      out += text.substr(i, c.size);
      begin = i + c.size;
    }
    i += c.size;
  }
  word(text.size());
  return out;
}

Value filter_trim(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("trim", args, {"chars"});
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view text = to_str(sandbox, self);
  if (!bound.is_given(0)) {
    return Value::string(strip_paid(sandbox, text, nullptr, true, true), self.is_markup());
  }
  const std::string_view chars = bound.string(0);
  return Value::string(strip_paid(sandbox, text, &chars, true, true), self.is_markup());
}

Value filter_replace(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  Sandbox& sandbox = interpreter.sandbox();
  const int64_t count = bound.is_given(2) ? bound.integer(2, -1) : -1;
  const std::string out =
      replaced(sandbox, to_str(sandbox, self), to_str(sandbox, bound[0]), to_str(sandbox, bound[1]), count);
  return Value::string(sandbox.copy(out));
}

Value filter_indent(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("indent", args, {"width", "first", "blank"});
  Sandbox& sandbox = interpreter.sandbox();
  if (!self.is_string()) fail_needs_text(self, "indent");
  const std::string_view text = self.as_string();
  std::string margin(4, ' ');
  if (bound.has(0)) {
    if (bound[0].is_string()) {
      margin = bound[0].as_string();
    } else {
      const int64_t width = std::max<int64_t>(bound.integer(0, 4), 0);
      sandbox.need_string(static_cast<uint64_t>(width));
      margin.assign(static_cast<size_t>(width), ' ');
    }
  }
  const bool blank = bound.flag(2, false);
  sandbox.char_work(text.size());
  // The filter adds a newline before it splits, so text that ends in one keeps an empty last line.
  const std::string with_end = std::string(text) + '\n';
  std::vector<std::string_view> lines;
  split_lines(with_end, false, [&](std::string_view line) {
    sandbox.step();
    lines.push_back(line);
  });
  sandbox.need_string(text.size() + lines.size() * margin.size());
  std::string out;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out += '\n';
    if (i == 0 ? bound.flag(1, false) : (blank || !lines[i].empty())) out += margin;
    out += lines[i];
  }
  return filtered(interpreter, out, self);
}

Value filter_truncate(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("truncate", args, {"length", "killwords", "end", "leeway"});
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view end = bound.has(2) ? bound.string(2) : "...";
  const int64_t length = bound.integer(0, 255);
  const int64_t leeway = bound.is_given(3) ? bound.integer(3, 5) : 5;
  const auto end_size = static_cast<int64_t>(count_utf8(end));
  if (length < end_size) fail(fmt::format("expected length >= {}, got {}", end_size, length));
  if (leeway < 0) fail(fmt::format("expected leeway >= 0, got {}", leeway));
  if (static_cast<Int>(length_of(sandbox, self)) <= Int{length} + leeway) return self;
  if (!self.is_string()) fail_needs_text(self, "truncate");
  const std::string_view text = self.as_string();
  sandbox.char_work(text.size() + end.size());
  std::string_view kept = substring(text, 0, static_cast<size_t>(length - end_size));
  if (!bound.flag(1, false)) {
    const size_t space = kept.rfind(' ');
    if (space != std::string_view::npos) kept = kept.substr(0, space);
  }
  return filtered(interpreter, std::string(kept) + std::string(end), self);
}

Value filter_center(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("center", args, {"width"});
  Sandbox& sandbox = interpreter.sandbox();
  const std::string out = centered(sandbox, to_str(sandbox, self), bound.integer(0, 80), ' ');
  return filtered(interpreter, out, self);
}

Value filter_format(Interpreter& interpreter, const Value& self, const Args& args) {
  Sandbox& sandbox = interpreter.sandbox();
  if (!args.positional.empty() && !args.named.empty()) {
    fail("can't handle positional and keyword arguments at the same time");
  }
  Value values = new_tuple(sandbox, args.positional);
  if (!args.named.empty()) {
    Dict* dict = sandbox.make<Dict>();
    for (const Named& each : args.named) dict->set(sandbox, Value::string(each.name), each.value);
    values = Value::object(Kind::kDict, dict);
  }
  const Value format = self.is_string() ? self : Value::string(to_str(sandbox, self));
  return arithmetic(sandbox, BinaryOp::kMod, format, values);
}

Value filter_escape(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("escape", args, {});
  return escape(interpreter.sandbox(), self);
}

Value filter_safe(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("safe", args, {});
  return Value::string(to_str(interpreter.sandbox(), self), true);
}

Value filter_string(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("string", args, {});
  return self.is_string() ? self : Value::string(to_str(interpreter.sandbox(), self));
}

constexpr NamedFunction kTextFilters[] = {
    {"capitalize", change_filter<capitalize>},
    {"center", filter_center},
    {"e", filter_escape},
    {"escape", filter_escape},
    {"format", filter_format},
    {"indent", filter_indent},
    {"lower", change_filter<lower>},
    {"replace", filter_replace},
    {"safe", filter_safe},
    {"string", filter_string},
    {"title", change_filter<title_words>},
    {"trim", filter_trim},
    {"truncate", filter_truncate},
    {"upper", change_filter<upper>},
};

}  // namespace

std::span<const NamedFunction> text_filters() { return kTextFilters; }

void fail_needs_text(const Value& value, std::string_view function) {
  if (value.is_undefined()) fail_undefined(value);
  fail(fmt::format("{}: expected a string, not {}", function, type_name(value)));
}

std::string replaced(Sandbox& sandbox, std::string_view text, std::string_view old, std::string_view with,
                     int64_t count) {
  std::string out;
  sandbox.work(text.size());
  search_work(sandbox, text, old);
  uint64_t left = count < 0 ? UINT64_MAX : static_cast<uint64_t>(count);
  const auto put = [&](std::string_view piece) {
    sandbox.limit_string(out.size() + piece.size());
    sandbox.step();
    sandbox.work(piece.size());
    out += piece;
  };
  size_t from = 0;
  if (old.empty()) {
    // Between all characters, and at both ends.
    for (; left > 0; --left) {
      put(with);
      if (from == text.size()) return out;
      const size_t size = utf8_at(text, from).size;
      put(text.substr(from, size));
      from += size;
    }
    put(text.substr(from));
    return out;
  }
  for (; left > 0; --left) {
    const size_t at = find_text(text, old, from);
    if (at == std::string_view::npos) break;
    put(text.substr(from, at - from));
    put(with);
    from = at + old.size();
  }
  put(text.substr(from));
  return out;
}

std::string_view strip_paid(Sandbox& sandbox, std::string_view text, const std::string_view* chars, bool left,
                            bool right) {
  if (chars != nullptr && chars->size() > 256) fail("strip: too many characters to strip");
  const std::string_view out = strip(text, chars, left, right);
  const uint64_t stripped = text.size() - out.size();
  sandbox.char_work(stripped + (chars == nullptr ? 0 : stripped * chars->size() / 16));
  return out;
}

void search_work(Sandbox& sandbox, std::string_view text, std::string_view needle) {
  if (needle.size() > 32) {
    sandbox.char_work(text.size());
  } else {
    sandbox.work(4 * text.size());
  }
}

std::string centered(Sandbox& sandbox, std::string_view text, int64_t width, char32_t fill) {
  sandbox.work(text.size());
  const auto size = static_cast<int64_t>(count_utf8(text));
  if (width <= size) return std::string(text);
  const int64_t pad = width - size;
  const int64_t left = pad / 2 + (pad & width & 1);  // as CPython does
  return padded(sandbox, text, left, pad - left, fill);
}

std::string padded(Sandbox& sandbox, std::string_view text, int64_t left, int64_t right, char32_t fill) {
  std::string one;
  append_utf8(one, fill);
  Int bytes = static_cast<Int>(text.size());
  if (left > 0) bytes += Int{left} * static_cast<Int>(one.size());
  if (right > 0) bytes += Int{right} * static_cast<Int>(one.size());
  sandbox.need_string(bytes > INT64_MAX ? UINT64_MAX : static_cast<uint64_t>(bytes));
  std::string out;
  out.reserve(static_cast<size_t>(bytes));
  for (int64_t i = 0; i < left; ++i) out += one;
  out += text;
  for (int64_t i = 0; i < right; ++i) out += one;
  return out;
}

}  // namespace quire::jinja
