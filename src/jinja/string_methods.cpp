#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/interpreter.h"
#include "jinja/methods.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// Methods of str.
namespace quire::jinja {
namespace {

Value made(Interpreter& interpreter, std::string_view text, const Value& like) {
  return Value::string(interpreter.sandbox().copy(text), like.is_markup());
}

template <std::string (*Change)(std::string_view)>
Value changed(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("str method", args, {});
  interpreter.sandbox().char_work(self.as_string().size());
  return made(interpreter, Change(self.as_string()), self);
}

template <bool (*Test)(std::string_view)>
Value tested(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("str method", args, {});
  interpreter.sandbox().char_work(self.as_string().size());
  return Value::boolean(Test(self.as_string()));
}

bool is_ascii_text(std::string_view text) { return is_ascii(text); }

template <bool Left, bool Right>
Value stripped(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("strip", args, {"chars"});
  const std::string_view text = self.as_string();
  Sandbox& sandbox = interpreter.sandbox();
  if (!bound.is_given(0)) {
    return Value::string(strip_paid(sandbox, text, nullptr, Left, Right), self.is_markup());
  }
  const std::string_view chars = bound.string(0);
  return Value::string(strip_paid(sandbox, text, &chars, Left, Right), self.is_markup());
}

/// The part of `text` that [start, end) bounds, both optional arguments; none if it ends before it starts,
/// where there is nothing to find, not even the empty string.
std::optional<std::string_view> bounded(Sandbox& sandbox, std::string_view text, const Bound& bound,
                                        size_t first) {
  const Value start = bound.or_else(first, Value::none());
  const Value end = bound.or_else(first + 1, Value::none());
  if (start.is_none() && end.is_none()) return text;
  const std::string_view part = slice(sandbox, Value::string(text), start, end, Value::none()).as_string();
  if (!part.empty()) return part;
  const auto size = static_cast<Int>(count_utf8(text));
  const auto place = [size](const Value& value, Int otherwise) {
    if (value.is_none()) return otherwise;
    return value.as_int() < 0 ? std::max<Int>(value.as_int() + size, 0) : value.as_int();
  };
  const Int from = place(start, 0);
  if (from > std::min(place(end, size), size)) return std::nullopt;
  return text.substr(byte_of(text, static_cast<size_t>(from)), 0);
}

template <bool Start>
Value starts_or_ends(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound(Start ? "startswith" : "endswith", args, {"affix", "start", "end"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const std::optional<std::string_view> text = bounded(sandbox, self.as_string(), bound, 1);
  const auto matches = [&](const Value& affix) {
    if (affix.is_undefined()) fail_undefined(affix);
    if (!affix.is_string()) {
      fail(fmt::format("{} first arg must be str or a tuple of str, not {}",
                       Start ? "startswith" : "endswith", type_name(affix)));
    }
    sandbox.step();
    sandbox.work(affix.as_string().size());
    if (!text) return false;
    return Start ? text->starts_with(affix.as_string()) : text->ends_with(affix.as_string());
  };
  if (!bound[0].is(Kind::kTuple)) return Value::boolean(matches(bound[0]));
  return Value::boolean(std::any_of(bound[0].items().begin(), bound[0].items().end(), matches));
}

template <bool Last, bool Raises>
Value finding(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("find", args, {"sub", "start", "end"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view text = self.as_string();
  const std::string_view needle = bound.string(0);
  sandbox.work(2 * text.size());
  search_work(sandbox, text, needle);
  const std::optional<std::string_view> part = bounded(sandbox, text, bound, 1);
  size_t at = std::string_view::npos;
  if (part) at = Last ? find_last(sandbox, *part, needle) : find_text(*part, needle);
  if (at == std::string_view::npos) {
    if (Raises) fail("substring not found");
    return Value::integer(-1);
  }
  const auto before = static_cast<size_t>(part->data() - text.data());
  return Value::integer(static_cast<Int>(count_utf8(text.substr(0, before + at))));
}

Value count_text(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("count", args, {"sub", "start", "end"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const std::optional<std::string_view> part = bounded(sandbox, self.as_string(), bound, 1);
  const std::string_view needle = bound.string(0);
  if (!part) return Value::integer(0);
  const std::string_view text = *part;
  sandbox.work(2 * text.size());
  search_work(sandbox, text, needle);
  if (needle.empty()) return Value::integer(static_cast<Int>(count_utf8(text)) + 1);
  int64_t count = 0;
  for (size_t at = find_text(text, needle); at != std::string_view::npos;
       at = find_text(text, needle, at + needle.size())) {
    sandbox.step();
    ++count;
  }
  return Value::integer(count);
}

Value replace_text(Interpreter& interpreter, const Value& self, const Args& args) {
  // Python takes no keywords here (before 3.13).
  if (!args.named.empty()) fail("str.replace() takes no keyword arguments");
  const Bound bound("replace", args, {"old", "new", "count"}, 2);
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view old = bound.string(0);
  bound.string(1);
  const Value with = self.is_markup() ? escape(sandbox, bound[1]) : bound[1];
  return made(interpreter, replaced(sandbox, self.as_string(), old, with.as_string(), bound.integer(2, -1)),
              self);
}

Value join_text(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("join", args, {"iterable"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  std::string out;
  Walk walk(sandbox, bound[0]);
  Value item;
  for (int64_t i = 0; walk.next(sandbox, item); ++i) {
    if (i > 0) append_str(sandbox, out, self);
    if (self.is_markup()) {
      item = escape(sandbox, item);
    } else if (!item.is_string()) {
      fail(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(item)));
    }
    append_str(sandbox, out, item);
  }
  return made(interpreter, out, self);
}

template <bool Prefix>
Value without_affix(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound(Prefix ? "removeprefix" : "removesuffix", args, {"affix"}, 1);
  std::string_view text = self.as_string();
  const std::string_view affix = bound.string(0);
  interpreter.sandbox().work(std::min(text.size(), affix.size()));
  if (Prefix && text.starts_with(affix)) text.remove_prefix(affix.size());
  if (!Prefix && text.ends_with(affix)) text.remove_suffix(affix.size());
  return Value::string(text, self.is_markup());
}

enum class Side : uint8_t { kLeft, kRight, kBoth };

template <Side Of>
Value justified(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("ljust", args, {"width", "fillchar"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view text = self.as_string();
  const std::string_view fill = bound.has(1) ? bound.string(1) : " ";
  if (!is_one_char(fill)) fail("The fill character must be exactly one character long");
  const char32_t code = utf8_at(fill, 0).code;
  const int64_t width = bound.integer(0, 0);
  if (Of == Side::kBoth) return made(interpreter, centered(sandbox, text, width, code), self);
  sandbox.work(text.size());
  const auto size = static_cast<int64_t>(count_utf8(text));
  const int64_t pad = width > size ? width - size : 0;
  return made(interpreter,
              padded(sandbox, text, Of == Side::kRight ? pad : 0, Of == Side::kLeft ? pad : 0, code), self);
}

Value zero_filled(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("zfill", args, {"width"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view text = self.as_string();
  sandbox.work(text.size());
  const auto size = static_cast<int64_t>(count_utf8(text));
  const int64_t width = bound.integer(0, 0);
  if (width <= size) return self;
  const bool is_signed = text.starts_with('-') || text.starts_with('+');
  const std::string digits = padded(sandbox, text.substr(is_signed ? 1 : 0), width - size, 0, '0');
  return made(interpreter, std::string(text.substr(0, is_signed ? 1 : 0)) + digits, self);
}

Value format_text(Interpreter& interpreter, const Value& self, const Args& args) {
  Sandbox& sandbox = interpreter.sandbox();
  return made(interpreter, brace_format(sandbox, self.as_string(), args), self);
}

constexpr Method kMethods[] = {
    {"capitalize", changed<capitalize>},
    {"center", justified<Side::kBoth>},
    {"count", count_text},
    {"endswith", starts_or_ends<false>},
    {"find", finding<false, false>},
    {"format", format_text},
    {"index", finding<false, true>},
    {"isalnum", tested<is_alnum>},
    {"isalpha", tested<is_alpha>},
    {"isascii", tested<is_ascii_text>},
    {"isdecimal", tested<is_decimal>},
    {"isdigit", tested<is_digit>},
    {"islower", tested<is_lower>},
    {"isnumeric", tested<is_numeric_text>},
    {"isspace", tested<is_space>},
    {"isupper", tested<is_upper>},
    {"join", join_text},
    {"ljust", justified<Side::kLeft>},
    {"lower", changed<lower>},
    {"lstrip", stripped<true, false>},
    {"removeprefix", without_affix<true>},
    {"removesuffix", without_affix<false>},
    {"replace", replace_text},
    {"rfind", finding<true, false>},
    {"rindex", finding<true, true>},
    {"rjust", justified<Side::kRight>},
    {"rstrip", stripped<false, true>},
    {"startswith", starts_or_ends<true>},
    {"strip", stripped<true, true>},
    {"title", changed<title>},
    {"upper", changed<upper>},
    {"zfill", zero_filled},
};

}  // namespace

size_t find_last(Sandbox& sandbox, std::string_view text, std::string_view needle) {
  if (needle.empty()) return text.size();
  // By the first byte, backwards; each try is paid for.
  size_t at = text.rfind(needle[0]);
  while (at != std::string_view::npos && !text.substr(at).starts_with(needle)) {
    sandbox.work(16 + needle.size());
    at = at == 0 ? std::string_view::npos : text.rfind(needle[0], at - 1);
  }
  return at;
}

std::span<const Method> string_methods() { return kMethods; }

}  // namespace quire::jinja
