#include <algorithm>

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/interpreter.h"
#include "jinja/methods.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// Iteration, subscripts and attributes.
namespace quire::jinja {
namespace {

Value view_item(Sandbox& sandbox, const View& view, size_t i) {
  const Entry& entry = view.dict->entries()[i];
  switch (view.part) {
    case View::Part::kKeys:
      return entry.key;
    case View::Part::kValues:
      return entry.value;
    case View::Part::kItems:
      return new_tuple(sandbox, {entry.key, entry.value});
  }
  return {};
}

Value missing(Sandbox& sandbox, const Value& object, std::string_view name, bool is_element = false) {
  return Value::undefined(
      sandbox.make<Missing>(std::string_view{}, type_name(object), sandbox.copy(name), is_element));
}

Value unsafe(Sandbox& sandbox, const Value& object, std::string_view name) {
  const std::string hint =
      fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object));
  return Value::undefined(sandbox.make<Missing>(sandbox.copy(hint)));
}

/// What Python's sandbox hides: private names, and methods that change a list or a dict.
bool is_hidden(const Value& object, std::string_view name) {
  if (name.starts_with("__") && name.ends_with("__")) return true;
  const auto any_of = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (object.is(Kind::kList)) {
    return any_of({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  }
  return object.is(Kind::kDict) && any_of({"clear", "pop", "popitem", "setdefault", "update"});
}

/// A position counted from either end, or size if it is out of range.
size_t position(Int index, size_t size) {
  const Int length = static_cast<Int>(size);
  if (index < 0) index += length;
  return index < 0 || index >= length ? size : static_cast<size_t>(index);
}

/// The steps of finding a character by its index.
void char_steps(Sandbox& sandbox, std::string_view text) {
  sandbox.work(text.size());
  if (!is_ascii(text)) sandbox.char_work(text.size());
}

/// obj[key] proper; no value where Python raises LookupError or TypeError.
std::optional<Value> python_item(Sandbox& sandbox, const Value& object, const Value& key) {
  switch (object.kind()) {
    case Kind::kUndefined:
      fail_undefined(object);
    case Kind::kDict: {
      if (key.is(Kind::kList) || key.is(Kind::kDict)) return std::nullopt;
      const Value* found = object.as<Dict>().find(sandbox, key);
      return found == nullptr ? std::nullopt : std::optional(*found);
    }
    case Kind::kString: {
      if (!key.is_integral()) return std::nullopt;
      const std::string_view text = object.as_string();
      char_steps(sandbox, text);
      const size_t size = count_utf8(text);
      const size_t at = position(key.as_int(), size);
      if (at == size) return std::nullopt;
      return Value::string(substring(text, at, at + 1), object.is_markup());
    }
    case Kind::kList:
    case Kind::kTuple: {
      if (!key.is_integral()) return std::nullopt;
      const size_t at = position(key.as_int(), object.items().size());
      if (at == object.items().size()) return std::nullopt;
      return object.items()[at];
    }
    case Kind::kRange: {
      if (!key.is_integral()) return std::nullopt;
      const Range& range = object.as<Range>();
      const size_t at = position(key.as_int(), range.size());
      if (at == range.size()) return std::nullopt;
      return Value::integer(range.at(at));
    }
    default:
      return std::nullopt;
  }
}

struct Bounds {
  Int start;
  Int stop;
  Int step;
  size_t count;
};

/// slice.indices() (Python's language reference, "Sequence types").
Bounds bounds(size_t size, const Value& start, const Value& stop, const Value& step) {
  const auto given = [](const Value& value) {
    if (value.is_none()) return false;
    if (!value.is_integral()) fail("slice indices must be integers or None or have an __index__ method");
    return true;
  };
  const Int length = static_cast<Int>(size);
  const Int by = given(step) ? step.as_int() : 1;
  if (by == 0) fail("slice step cannot be zero");
  const Int low = by > 0 ? 0 : -1;
  const Int high = by > 0 ? length : length - 1;
  const auto bound = [&](const Value& value, Int otherwise) {
    if (!given(value)) return otherwise;
    Int index = value.as_int();
    if (index < 0) index = index < -length ? low : index + length;
    return std::clamp(index, low, high);
  };
  const Int first = bound(start, by > 0 ? low : high);
  const Int last = bound(stop, by > 0 ? high : low);
  const Int distance = by > 0 ? last - first : first - last;
  if (distance <= 0) return {first, last, by, 0};
  const Int magnitude = by > 0 ? by : -by;
  return {first, last, by, static_cast<size_t>((distance - 1) / magnitude + 1)};
}

}  // namespace

size_t length_of(Sandbox& sandbox, const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      sandbox.work(value.as_string().size());
      return count_utf8(value.as_string());
    case Kind::kList:
    case Kind::kTuple:
      return value.items().size();
    case Kind::kDict:
      return value.as<Dict>().size();
    case Kind::kRange:
      return value.as<Range>().size();
    case Kind::kView:
      return value.as<View>().dict->size();
    case Kind::kLoop:
      return loop_length(sandbox, value.as<Loop>());
    default:
      fail(fmt::format("object of type '{}' has no len()", type_name(value)));
  }
}

bool has_length(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kString:
    case Kind::kList:
    case Kind::kTuple:
    case Kind::kDict:
    case Kind::kRange:
    case Kind::kView:
    case Kind::kLoop:
      return true;
    default:
      return false;
  }
}

bool is_iterable(const Value& value) {
  return (has_length(value) && !value.is(Kind::kLoop)) || value.is(Kind::kIterator);
}

Walk::Walk(Sandbox& sandbox, const Value& iterable) : source_(iterable) {
  sandbox.step();
  if (!is_iterable(iterable)) fail(fmt::format("'{}' object is not iterable", type_name(iterable)));
}

bool Walk::next(Sandbox& sandbox, Value& out) {
  sandbox.step();
  switch (source_.kind()) {
    case Kind::kString: {
      const std::string_view text = source_.as_string();
      if (position_ >= text.size()) return false;
      const size_t size = utf8_at(text, position_).size;
      out = Value::string(text.substr(position_, size));  // of markup too, as Python's iterator does
      position_ += size;
      return true;
    }
    case Kind::kList:
    case Kind::kTuple:
      if (position_ >= source_.items().size()) return false;
      out = source_.items()[position_++];
      return true;
    case Kind::kDict:
      if (position_ >= source_.as<Dict>().size()) return false;
      out = source_.as<Dict>().entries()[position_++].key;
      return true;
    case Kind::kRange:
      if (position_ >= source_.as<Range>().size()) return false;
      out = Value::integer(source_.as<Range>().at(position_++));
      return true;
    case Kind::kView:
      if (position_ >= source_.as<View>().dict->size()) return false;
      out = view_item(sandbox, source_.as<View>(), position_++);
      return true;
    case Kind::kIterator: {
      Iterator& iterator = source_.as<Iterator>();
      if (iterator.next >= iterator.items.size()) return false;
      out = iterator.items[iterator.next++];
      return true;
    }
    default:
      return false;
  }
}

std::vector<Value> collect(Sandbox& sandbox, const Value& iterable) {
  std::vector<Value> out;
  Walk walk(sandbox, iterable);
  Value each;
  while (walk.next(sandbox, each)) {
    sandbox.step();
    out.push_back(each);
  }
  return out;
}

Value new_list(Sandbox& sandbox, const std::vector<Value>& items) { return Value::list(sandbox.keep(items)); }
Value new_tuple(Sandbox& sandbox, const std::vector<Value>& items) {
  return Value::tuple(sandbox.keep(items));
}

Value new_iterator(Sandbox& sandbox, std::string_view type, const std::vector<Value>& items) {
  return Value::object(Kind::kIterator, sandbox.make<Iterator>(type, sandbox.keep(items)));
}

std::optional<Value> python_attribute(Sandbox& sandbox, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (object.is(Kind::kNamespace) || object.is(Kind::kBlocks)) {
    const Value* found = object.as<Dict>().find(sandbox, name);
    return found == nullptr ? std::nullopt : std::optional(*found);
  }
  if (object.is(Kind::kLoop)) return loop_attribute(sandbox, object, name);
  if (object.is(Kind::kMacro)) return macro_attribute(sandbox, object, name);
  if (object.is_number()) {
    if (name == "real") return plus(object);
    if (name == "imag") return object.is_integral() ? Value::integer(0) : Value::real(0);
    if (object.is_integral() && name == "numerator") return plus(object);
    if (object.is_integral() && name == "denominator") return Value::integer(1);
  }
  if (object.is(Kind::kRange)) {
    const Range& range = object.as<Range>();
    if (name == "start") return Value::integer(range.start);
    if (name == "stop") return Value::integer(range.stop);
    if (name == "step") return Value::integer(range.step);
  }
  if (object.is_group() && name == "grouper") return object.items()[0];
  if (object.is_group() && name == "list") return object.items()[1];
  const Method* method = find_method(object, name);
  if (method == nullptr) return std::nullopt;
  return Value::object(Kind::kFunction, sandbox.make<Function>(method->name, method->call, object));
}

Value get_item(Sandbox& sandbox, const Value& object, const Value& key) {
  if (const std::optional<Value> item = python_item(sandbox, object, key)) return *item;
  if (key.is_string()) {
    const std::string_view name = key.as_string();
    if (is_hidden(object, name)) return unsafe(sandbox, object, name);
    if (const std::optional<Value> found = python_attribute(sandbox, object, name)) return *found;
    return missing(sandbox, object, name);
  }
  std::string repr;
  append_repr(sandbox, repr, key);
  return missing(sandbox, object, repr, true);
}

Value get_attribute(Sandbox& sandbox, const Value& object, std::string_view name) {
  if (object.is_undefined()) fail_undefined(object);
  if (is_hidden(object, name)) return unsafe(sandbox, object, name);
  if (const std::optional<Value> found = python_attribute(sandbox, object, name)) return *found;
  if (const std::optional<Value> item = python_item(sandbox, object, Value::string(name))) return *item;
  return missing(sandbox, object, name);
}

Value slice(Sandbox& sandbox, const Value& object, const Value& start, const Value& stop, const Value& step) {
  switch (object.kind()) {
    case Kind::kUndefined:
      fail_undefined(object);
    case Kind::kList:
    case Kind::kTuple: {
      const Bounds at = bounds(object.items().size(), start, stop, step);
      if (at.step == 1) {
        return Value::sequence(
            object.kind(),
            object.items().subspan(at.count == 0 ? 0 : static_cast<size_t>(at.start), at.count));
      }
      const std::span<Value> out = sandbox.array<Value>(at.count);
      for (size_t i = 0; i < at.count; ++i) {
        out[i] = object.items()[static_cast<size_t>(at.start + static_cast<Int>(i) * at.step)];
      }
      return Value::sequence(object.kind(), out);
    }
    case Kind::kString: {
      const std::string_view text = object.as_string();
      char_steps(sandbox, text);
      const Bounds at = bounds(count_utf8(text), start, stop, step);
      if (at.count == 0) return Value::string({}, object.is_markup());
      const auto first = static_cast<size_t>(at.start);
      if (at.step == 1) return Value::string(substring(text, first, first + at.count), object.is_markup());
      sandbox.step(text.size());
      const std::vector<std::string_view> chars = split_chars(text);
      std::string out;
      for (size_t i = 0; i < at.count; ++i) {
        out += chars[static_cast<size_t>(at.start + static_cast<Int>(i) * at.step)];
      }
      return Value::string(sandbox.copy(out), object.is_markup());
    }
    case Kind::kRange: {
      const Range& range = object.as<Range>();
      const Bounds at = bounds(range.size(), start, stop, step);
      const auto place = [&](Int i) { return range.start + i * range.step; };
      const auto narrow = [](Int value) {
        if (value > INT64_MAX || value < INT64_MIN) fail("integer too large");
        return static_cast<int64_t>(value);
      };
      Int by = 0;
      if (__builtin_mul_overflow(at.step, Int{range.step}, &by)) fail("integer too large");
      return Value::object(Kind::kRange,
                           sandbox.make<Range>(narrow(place(at.start)), narrow(place(at.stop)), narrow(by)));
    }
    case Kind::kDict:
      fail("unhashable type: 'slice'");
    default:
      fail(fmt::format("'{}' object is not subscriptable", type_name(object)));
  }
}

int64_t to_index(const Value& value, std::string_view what) {
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_integral()) {
    fail(fmt::format("{}: '{}' object cannot be interpreted as an integer", what, type_name(value)));
  }
  if (value.as_int() > INT64_MAX || value.as_int() < INT64_MIN)
    fail(fmt::format("{}: integer too large", what));
  return static_cast<int64_t>(value.as_int());
}

}  // namespace quire::jinja
