#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// Filters on sequences and mappings. Where Python makes a generator, all is computed at once and handed out
// as an iterator.
namespace quire::jinja {
namespace {

Value undefined(Sandbox& sandbox, std::string_view hint) {
  return Value::undefined(sandbox.make<Missing>(hint));
}

Value generator(Sandbox& sandbox, const std::vector<Value>& items) {
  return new_iterator(sandbox, "generator", items);
}

Value filter_join(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("join", args, {"d", "attribute"});
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view separator = bound.has(0) ? to_str(sandbox, bound[0]) : std::string_view{};
  const Getter getter(sandbox, bound.or_else(1, Value::none()));
  std::string out;
  Walk walk(sandbox, self);
  Value item;
  for (bool first = true; walk.next(sandbox, item); first = false) {
    if (!first) append_str(sandbox, out, Value::string(separator));
    append_str(sandbox, out, getter.get(sandbox, item));
  }
  return Value::string(sandbox.copy(out));
}

Value filter_length(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("length", args, {});
  return Value::integer(static_cast<Int>(length_of(interpreter.sandbox(), self)));
}

Value filter_first(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("first", args, {});
  Sandbox& sandbox = interpreter.sandbox();
  Walk walk(sandbox, self);
  Value item;
  return walk.next(sandbox, item) ? item : undefined(sandbox, "No first item, sequence was empty.");
}

std::vector<Value> reversed_items(Sandbox& sandbox, const Value& value) {
  std::vector<Value> items = collect(sandbox, value);
  std::reverse(items.begin(), items.end());
  return items;
}

Value filter_last(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("last", args, {});
  Sandbox& sandbox = interpreter.sandbox();
  if (self.is(Kind::kIterator)) fail(fmt::format("'{}' object is not reversible", type_name(self)));
  if (self.is_sequence()) {
    if (!self.items().empty()) return self.items().back();
  } else if (const std::vector<Value> items = collect(sandbox, self); !items.empty()) {
    return items.back();
  }
  return undefined(sandbox, "No last item, sequence was empty.");
}

Value filter_list(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("list", args, {});
  Sandbox& sandbox = interpreter.sandbox();
  return new_list(sandbox, collect(sandbox, self));
}

Value filter_reverse(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("reverse", args, {});
  Sandbox& sandbox = interpreter.sandbox();
  if (self.is_string()) return slice(sandbox, self, Value::none(), Value::none(), Value::integer(-1));
  if (self.is(Kind::kIterator)) return new_list(sandbox, reversed_items(sandbox, self));
  return new_iterator(sandbox, self.is(Kind::kList) ? "list_reverseiterator" : "reversed",
                      reversed_items(sandbox, self));
}

Value filter_items(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("items", args, {});
  Sandbox& sandbox = interpreter.sandbox();
  if (self.is_undefined()) return generator(sandbox, {});
  if (!self.is(Kind::kDict)) fail("Can only get item pairs from a mapping.");
  const View view{&self.as<Dict>(), View::Part::kItems};
  return generator(sandbox, collect(sandbox, Value::object(Kind::kView, &view)));
}

Args without_first(const Args& args, size_t count) {
  Args rest;
  rest.positional.assign(args.positional.begin() + static_cast<std::ptrdiff_t>(count), args.positional.end());
  rest.named = args.named;
  return rest;
}

std::string_view name_argument(const Value& value) {
  if (!value.is_string()) fail(fmt::format("expected a name, not {}", type_name(value)));
  return value.as_string();
}

Value map_attribute(Sandbox& sandbox, const Value& self, const Args& args) {
  const Bound bound("map", args, {"attribute", "default"}, 1);
  const Getter getter(sandbox, bound[0]);
  const Value* otherwise = bound.is_given(1) ? &bound[1] : nullptr;
  std::vector<Value> out;
  for (const Value& item : collect(sandbox, self)) out.push_back(getter.get(sandbox, item, otherwise));
  return generator(sandbox, out);
}

Value filter_map(Interpreter& interpreter, const Value& self, const Args& args) {
  Sandbox& sandbox = interpreter.sandbox();
  if (!truthy(self)) return generator(sandbox, {});
  const bool by_attribute = std::any_of(args.named.begin(), args.named.end(),
                                        [](const Named& each) { return each.name == "attribute"; });
  if (args.positional.empty() && by_attribute) return map_attribute(sandbox, self, args);
  if (args.positional.empty()) fail("map requires a filter argument");
  const std::string_view name = name_argument(args.positional[0]);
  const Args rest = without_first(args, 1);
  const Sandbox::Level level(sandbox);
  std::vector<Value> out;
  for (const Value& item : collect(sandbox, self)) out.push_back(interpreter.call_filter(name, item, rest));
  return generator(sandbox, out);
}

template <bool Keep, bool ByAttribute>
Value selecting(Interpreter& interpreter, const Value& self, const Args& args) {
  Sandbox& sandbox = interpreter.sandbox();
  if (!truthy(self)) return generator(sandbox, {});
  constexpr size_t kOffset = ByAttribute ? 1 : 0;
  if (args.positional.size() < kOffset) fail("Missing parameter for attribute name");
  const Getter getter(sandbox, ByAttribute ? args.positional[0] : Value::none());
  const bool has_test = args.positional.size() > kOffset;
  const std::string_view name = has_test ? name_argument(args.positional[kOffset]) : std::string_view{};
  const Args rest = has_test ? without_first(args, kOffset + 1) : Args{};
  const Sandbox::Level level(sandbox);
  std::vector<Value> out;
  for (const Value& item : collect(sandbox, self)) {
    const Value value = getter.get(sandbox, item);
    const bool passes = has_test ? interpreter.call_test(name, value, rest) : truthy(value);
    if (passes == Keep) out.push_back(item);
  }
  return generator(sandbox, out);
}

struct Keyed {
  Value key;
  Value item;
};

void sort_keyed(Sandbox& sandbox, std::vector<Keyed>& items, bool reverse) {
  // Descending keeps the order of equal items, as Python's sort does.
  std::stable_sort(items.begin(), items.end(), [&](const Keyed& a, const Keyed& b) {
    return reverse ? less(sandbox, b.key, a.key) : less(sandbox, a.key, b.key);
  });
}

Value items_of(Sandbox& sandbox, const std::vector<Keyed>& items) {
  const std::span<Value> out = sandbox.array<Value>(items.size());
  std::transform(items.begin(), items.end(), out.begin(), [](const Keyed& each) { return each.item; });
  return Value::list(out);
}

Value filter_sort(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("sort", args, {"reverse", "case_sensitive", "attribute"});
  Sandbox& sandbox = interpreter.sandbox();
  const bool case_sensitive = bound.flag(1, false);
  const Value attribute = bound.or_else(2, Value::none());
  std::vector<Getter> getters;
  if (attribute.is_string()) {
    std::string_view rest = attribute.as_string();
    while (true) {
      const size_t comma = rest.find(',');
      sandbox.step(8);
      getters.emplace_back(sandbox, Value::string(rest.substr(0, comma)));
      if (comma == std::string_view::npos) break;
      rest.remove_prefix(comma + 1);
    }
  } else {
    getters.emplace_back(sandbox, attribute);
  }
  std::vector<Keyed> items;
  for (const Value& item : collect(sandbox, self)) {
    std::vector<Value> key;
    for (const Getter& getter : getters) {
      const Value value = getter.get(sandbox, item);
      key.push_back(case_sensitive ? value : ignore_case(sandbox, value));
    }
    items.push_back({new_list(sandbox, key), item});
  }
  sort_keyed(sandbox, items, bound.flag(0, false));
  return items_of(sandbox, items);
}

Value filter_dictsort(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("dictsort", args, {"case_sensitive", "by", "reverse"});
  Sandbox& sandbox = interpreter.sandbox();
  const std::string_view by = bound.has(1) ? bound.string(1) : "key";
  if (by != "key" && by != "value") fail("You can only sort by either \"key\" or \"value\"");
  if (self.is_undefined()) fail_undefined(self);
  if (!self.is(Kind::kDict)) fail(fmt::format("'{} object' has no attribute 'items'", type_name(self)));
  std::vector<Keyed> items;
  for (const Entry& entry : self.as<Dict>().entries()) {
    const Value& key = by == "key" ? entry.key : entry.value;
    items.push_back({bound.flag(0, false) ? key : ignore_case(sandbox, key),
                     new_tuple(sandbox, {entry.key, entry.value})});
  }
  sort_keyed(sandbox, items, bound.flag(2, false));
  return items_of(sandbox, items);
}

Value filter_unique(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("unique", args, {"case_sensitive", "attribute"});
  Sandbox& sandbox = interpreter.sandbox();
  const Getter getter(sandbox, bound.or_else(1, Value::none()));
  Dict seen;
  std::vector<Value> out;
  for (const Value& item : collect(sandbox, self)) {
    Value key = getter.get(sandbox, item);
    if (!bound.flag(0, false)) key = ignore_case(sandbox, key);
    if (seen.find(sandbox, key) != nullptr) continue;
    seen.set(sandbox, key, Value::none());
    out.push_back(item);
  }
  return generator(sandbox, out);
}

template <bool Largest>
Value extreme(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound(Largest ? "max" : "min", args, {"case_sensitive", "attribute"});
  Sandbox& sandbox = interpreter.sandbox();
  const Getter getter(sandbox, bound.or_else(1, Value::none()));
  Keyed best;
  bool first = true;
  for (const Value& item : collect(sandbox, self)) {
    Value key = getter.get(sandbox, item);
    if (!bound.flag(0, false)) key = ignore_case(sandbox, key);
    const bool better = first || (Largest ? less(sandbox, best.key, key) : less(sandbox, key, best.key));
    if (better) best = {key, item};
    first = false;
  }
  return first ? undefined(sandbox, "No aggregated item, sequence was empty.") : best.item;
}

Value filter_sum(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("sum", args, {"attribute", "start"});
  Sandbox& sandbox = interpreter.sandbox();
  const Getter getter(sandbox, bound.or_else(0, Value::none()));
  Value total = bound.or_else(1, Value::integer(0));
  if (total.is_string()) fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : collect(sandbox, self)) {
    total = arithmetic(sandbox, BinaryOp::kAdd, total, getter.get(sandbox, item));
  }
  return total;
}

Value filter_groupby(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("groupby", args, {"attribute", "default", "case_sensitive"}, 1);
  Sandbox& sandbox = interpreter.sandbox();
  const Getter getter(sandbox, bound[0]);
  const Value* otherwise = bound.is_given(1) ? &bound[1] : nullptr;
  std::vector<Keyed> items;
  for (const Value& item : collect(sandbox, self)) {
    const Value key = getter.get(sandbox, item, otherwise);
    items.push_back({bound.flag(2, false) ? key : ignore_case(sandbox, key), item});
  }
  sort_keyed(sandbox, items, false);
  std::vector<Value> groups;
  for (size_t i = 0; i < items.size();) {
    std::vector<Value> members;
    const Value key = items[i].key;
    const Value shown = getter.get(sandbox, items[i].item, otherwise);
    for (; i < items.size() && equal(sandbox, items[i].key, key); ++i) members.push_back(items[i].item);
    if (members.empty()) fail("groupby: the key equals nothing, itself included");
    groups.push_back(Value::group(new_tuple(sandbox, {shown, new_list(sandbox, members)}).items()));
  }
  return new_list(sandbox, groups);
}

constexpr NamedFunction kSequenceFilters[] = {
    {"count", filter_length},
    {"dictsort", filter_dictsort},
    {"first", filter_first},
    {"groupby", filter_groupby},
    {"items", filter_items},
    {"join", filter_join},
    {"last", filter_last},
    {"length", filter_length},
    {"list", filter_list},
    {"map", filter_map},
    {"max", extreme<true>},
    {"min", extreme<false>},
    {"reject", selecting<false, false>},
    {"rejectattr", selecting<false, true>},
    {"reverse", filter_reverse},
    {"select", selecting<true, false>},
    {"selectattr", selecting<true, true>},
    {"sort", filter_sort},
    {"sum", filter_sum},
    {"unique", filter_unique},
};

}  // namespace

std::span<const NamedFunction> sequence_filters() { return kSequenceFilters; }

}  // namespace quire::jinja
