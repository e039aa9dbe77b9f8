#include "jinja/methods.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// Methods of lists, tuples and dicts; str's splitting ones. str's others are in
// string_methods.cpp.
namespace quire::jinja {
namespace {

Value pieces(Sandbox& sandbox, const std::vector<std::string_view>& parts, const Value& like) {
  const std::span<Value> out = sandbox.array<Value>(parts.size());
  for (size_t i = 0; i < parts.size(); ++i) out[i] = Value::string(parts[i], like.is_markup());
  return Value::list(out);
}

/// The bytes at the head (or the end) of `text` before the first white space from there.
size_t word_size(std::string_view text, bool from_right) {
  size_t size = 0;
  while (size < text.size()) {
    const Utf8Char c = from_right ? utf8_before(text, text.size() - size) : utf8_at(text, size);
    if (is_python_space(c.code)) break;
    size += c.size;
  }
  return size;
}

/// At runs of white space, at most `limit` times, from the left or from the right.
std::vector<std::string_view> split_blanks(std::string_view text, uint64_t limit, bool from_right) {
  std::vector<std::string_view> out;
  while (true) {
    text = strip(text, nullptr, !from_right, from_right);
    if (text.empty()) return out;
    if (out.size() == limit) {
      out.push_back(text);
      return out;
    }
    const size_t size = word_size(text, from_right);
    out.push_back(from_right ? text.substr(text.size() - size) : text.substr(0, size));
    text = from_right ? text.substr(0, text.size() - size) : text.substr(size);
  }
}

std::vector<std::string_view> split_at(Sandbox& sandbox, std::string_view text, std::string_view separator,
                                       uint64_t limit) {
  std::vector<std::string_view> out;
  size_t from = 0;
  while (out.size() < limit) {
    const size_t at = find_text(text, separator, from);
    if (at == std::string_view::npos) break;
    sandbox.step();
    out.push_back(text.substr(from, at - from));
    from = at + separator.size();
  }
  out.push_back(text.substr(from));
  return out;
}

std::vector<std::string_view> split_at_from_right(Sandbox& sandbox, std::string_view text,
                                                  std::string_view separator, uint64_t limit) {
  std::vector<std::string_view> out;
  size_t end = text.size();
  while (out.size() < limit) {
    const size_t at = find_last(sandbox, text.substr(0, end), separator);
    if (at == std::string_view::npos) break;
    out.push_back(text.substr(at + separator.size(), end - at - separator.size()));
    end = at;
  }
  out.push_back(text.substr(0, end));
  return out;
}

template <bool FromRight>
Value split_text(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound(FromRight ? "rsplit" : "split", args, {"sep", "maxsplit"});
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view text = self.as_string();
  const int64_t most = bound.integer(1, -1);
  const uint64_t limit = most < 0 ? UINT64_MAX : static_cast<uint64_t>(most);
  std::vector<std::string_view> parts;
  if (!bound.is_given(0)) {
    sandbox.char_work(text.size());
    parts = split_blanks(text, limit, FromRight);
  } else {
    const std::string_view separator = bound.string(0);
    if (separator.empty()) fail("empty separator");
    search_work(sandbox, text, separator);
    parts = FromRight ? split_at_from_right(sandbox, text, separator, limit)
                      : split_at(sandbox, text, separator, limit);
  }
  if (FromRight) std::reverse(parts.begin(), parts.end());
  return pieces(sandbox, parts, self);
}

Value split_text_lines(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("splitlines", args, {"keepends"});
  Sandbox& sandbox = interpreter.sandbox();
  sandbox.char_work(self.as_string().size());
  std::vector<std::string_view> lines;
  split_lines(self.as_string(), bound.flag(0, false), [&](std::string_view line) {
    sandbox.step();
    lines.push_back(line);
  });
  return pieces(sandbox, lines, self);
}

template <bool FromRight>
Value partition(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("partition", args, {"sep"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view text = self.as_string();
  const std::string_view separator = bound.string(0);
  if (separator.empty()) fail("empty separator");
  search_work(sandbox, text, separator);
  const std::vector<std::string_view> parts =
      FromRight ? split_at_from_right(sandbox, text, separator, 1) : split_at(sandbox, text, separator, 1);
  const auto piece = [&](std::string_view part) { return Value::string(part, self.is_markup()); };
  if (parts.size() == 1) {
    return FromRight ? new_tuple(sandbox, {piece({}), piece({}), piece(text)})
                     : new_tuple(sandbox, {piece(text), piece({}), piece({})});
  }
  return FromRight ? new_tuple(sandbox, {piece(parts[1]), piece(separator), piece(parts[0])})
                   : new_tuple(sandbox, {piece(parts[0]), piece(separator), piece(parts[1])});
}

constexpr Method kSplitMethods[] = {
    {"partition", partition<false>}, {"rpartition", partition<true>},  {"rsplit", split_text<true>},
    {"split", split_text<false>},    {"splitlines", split_text_lines},
};

Value dict_get(Interpreter& interpreter, const Value& self, const Args& args) {
  if (!args.named.empty()) fail("dict.get() takes no keyword arguments");
  const Bound bound("get", args, {"key", "default"}, 1);
  const Value* found = self.as<Dict>().find(interpreter.sandbox(), bound[0]);
  return found == nullptr ? bound.or_else(1, Value::none()) : *found;
}

template <View::Part Part>
Value dict_view(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound(Part == View::Part::kKeys     ? "keys"
                    : Part == View::Part::kValues ? "values"
                                                  : "items",
                    args, {});
  return Value::object(Kind::kView, interpreter.sandbox().make<View>(&self.as<Dict>(), Part));
}

Value dict_copy(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("copy", args, {});
  return self;  // nothing changes a dict
}

constexpr Method kDictMethods[] = {
    {"copy", dict_copy},
    {"get", dict_get},
    {"items", dict_view<View::Part::kItems>},
    {"keys", dict_view<View::Part::kKeys>},
    {"values", dict_view<View::Part::kValues>},
};

Value list_count(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("count", args, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.items()) count += equal(interpreter.sandbox(), item, bound[0]) ? 1 : 0;
  return Value::integer(count);
}

Value list_index(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("index", args, {"value", "start", "stop"}, 1);
  const auto size = static_cast<int64_t>(self.items().size());
  const auto limit = [&](size_t i, int64_t otherwise) {
    const int64_t value = bound.integer(i, otherwise);
    return std::clamp<int64_t>(value < -size ? 0 : value < 0 ? value + size : value, 0, size);
  };
  const int64_t stop = limit(2, size);
  for (int64_t i = limit(1, 0); i < stop; ++i) {
    if (equal(interpreter.sandbox(), self.items()[static_cast<size_t>(i)], bound[0]))
      return Value::integer(i);
  }
  std::string repr;
  append_repr(interpreter.sandbox(), repr, bound[0]);
  fail(fmt::format("{} is not in {}", repr, type_name(self)));
}

Value list_copy(Interpreter&, const Value& self, const Args& args) {
  const Bound bound("copy", args, {});
  return self;
}

constexpr Method kListMethods[] = {{"count", list_count}, {"index", list_index}, {"copy", list_copy}};
constexpr Method kTupleMethods[] = {{"count", list_count}, {"index", list_index}};

const Method* find_in(std::span<const Method> methods, std::string_view name) {
  const auto found =
      std::find_if(methods.begin(), methods.end(), [&](const Method& each) { return each.name == name; });
  return found == methods.end() ? nullptr : &*found;
}

}  // namespace

const Method* find_method(const Value& object, std::string_view name) {
  switch (object.kind()) {
    case Kind::kString: {
      const Method* found = find_in(string_methods(), name);
      return found != nullptr ? found : find_in(kSplitMethods, name);
    }
    case Kind::kDict:
      return find_in(kDictMethods, name);
    case Kind::kList:
      return find_in(kListMethods, name);
    case Kind::kTuple:
      return find_in(kTupleMethods, name);
    default:
      return nullptr;
  }
}

}  // namespace quire::jinja
