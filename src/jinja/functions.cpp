#include "jinja/functions.h"

#include <algorithm>
#include <ctime>
#include <map>

#include <fmt/format.h>

#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// How native functions take arguments; the global functions.
namespace quire::jinja {
namespace {

using Table = std::map<std::string_view, NativeFunction>;

constexpr size_t kMaxRange = 100'000;  // jinja2.sandbox.MAX_RANGE

Value global_range(Interpreter& interpreter, const Value&, const Args& args) {
  if (!args.named.empty()) fail("range() takes no keyword arguments");
  const size_t count = args.positional.size();
  if (count < 1 || count > 3) fail(fmt::format("range expected 1 to 3 arguments, got {}", count));
  const auto bound = [&](size_t i) {
    const int64_t value = to_index(args.positional[i], "range()");
    // Keeps every sum of bounds and steps within 64 bits.
    if (value > INT64_MAX / 4 || value < INT64_MIN / 4) fail("range(): integer too large");
    return value;
  };
  Range range;
  if (count == 1) {
    range.stop = bound(0);
  } else {
    range.start = bound(0);
    range.stop = bound(1);
    if (count == 3) range.step = bound(2);
  }
  if (range.step == 0) fail("range() arg 3 must not be zero");
  if (range.size() > kMaxRange) {
    fail(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  }
  return Value::object(Kind::kRange, interpreter.sandbox().make<Range>(range));
}

/// dict(...): from a mapping or pairs, and keyword arguments.
Dict* new_dict(Sandbox& sandbox, const Args& args, std::string_view function) {
  if (args.positional.size() > 1) {
    fail(fmt::format("{} expected at most 1 argument, got {}", function, args.positional.size()));
  }
  Dict* dict = sandbox.make<Dict>();
  if (!args.positional.empty()) {
    const Value& from = args.positional[0];
    if (from.is_undefined()) fail_undefined(from);
    if (from.is(Kind::kDict)) {
      for (const Entry& entry : from.as<Dict>().entries()) dict->set(sandbox, entry.key, entry.value);
    } else {
      for (const Value& pair : collect(sandbox, from)) {
        const std::vector<Value> parts = collect(sandbox, pair);
        if (parts.size() != 2) fail("dictionary update sequence element has the wrong length; 2 is required");
        dict->set(sandbox, parts[0], parts[1]);
      }
    }
  }
  for (const Named& each : args.named) dict->set(sandbox, Value::string(each.name), each.value);
  return dict;
}

Value global_dict(Interpreter& interpreter, const Value&, const Args& args) {
  return Value::object(Kind::kDict, new_dict(interpreter.sandbox(), args, "dict"));
}

Value global_namespace(Interpreter& interpreter, const Value&, const Args& args) {
  return Value::object(Kind::kNamespace, new_dict(interpreter.sandbox(), args, "namespace"));
}

Value global_raise_exception(Interpreter& interpreter, const Value&, const Args& args) {
  const Bound bound("raise_exception", args, {"message"}, 1);
  throw Fault{.message = std::string(to_str(interpreter.sandbox(), bound[0])), .from_template = true};
}

/// One directive of strftime in the C locale; what Python adds for a time without a zone is empty.
void append_time(std::string& out, const std::tm& time, std::string_view directive) {
  const char what = directive.back();
  if (what == 'f') {
    out += "000000";
    return;
  }
  if (what == 'z' || what == 'Z') return;
  constexpr std::string_view kKnown = "aAbBcCdDeFgGhHIjklmMnprRsStTuUVwWxXyY%";
  if (kKnown.find(what) == std::string_view::npos) {
    out += directive;
    return;
  }
  char text[128];
  out.append(text, std::strftime(text, sizeof text, std::string(directive).c_str(), &time));
}

Value global_strftime_now(Interpreter& interpreter, const Value&, const Args& args) {
  const Bound bound("strftime_now", args, {"format"}, 1);
  const std::string_view format = bound.string(0);
  interpreter.sandbox().need_string(format.size());
  std::tm time{};
  const RenderClock& clock = interpreter.clock();
  if (clock.utc) {
    gmtime_r(&clock.now, &time);
  } else {
    localtime_r(&clock.now, &time);
  }
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    const size_t flags = format[i + 1] == '-' || format[i + 1] == '_' || format[i + 1] == '0' ? 1 : 0;
    const size_t size = std::min(2 + flags, format.size() - i);
    interpreter.sandbox().step(8);
    append_time(out, time, format.substr(i, size));
    i += size - 1;
  }
  return Value::string(interpreter.sandbox().copy(out));
}

constexpr NamedFunction kGlobals[] = {
    {"dict", global_dict},
    {"namespace", global_namespace},
    {"range", global_range},
    {"raise_exception", global_raise_exception},
    {"strftime_now", global_strftime_now},
};

}  // namespace

const NamedFunction* find_global(std::string_view name) {
  for (const NamedFunction& each : kGlobals) {
    if (each.name == name) return &each;
  }
  return nullptr;
}

NativeFunction find_filter(std::string_view name) {
  static const Table kTable = [] {
    Table table;
    for (const auto functions : {text_filters(), sequence_filters(), value_filters()}) {
      for (const NamedFunction& each : functions) table[each.name] = each.call;
    }
    return table;
  }();
  const auto found = kTable.find(name);
  return found == kTable.end() ? nullptr : found->second;
}

Bound::Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> parameters,
             size_t required)
    : function_(function), names_(parameters), values_(parameters.size()) {
  if (args.positional.size() > names_.size()) {
    fail(fmt::format("{}() takes at most {} arguments ({} given)", function, names_.size(),
                     args.positional.size()));
  }
  for (size_t i = 0; i < args.positional.size(); ++i) values_[i] = {true, args.positional[i]};
  for (const Named& each : args.named) {
    const auto at = std::find(names_.begin(), names_.end(), each.name);
    if (at == names_.end()) {
      fail(fmt::format("{}() got an unexpected keyword argument '{}'", function, each.name));
    }
    Slot& slot = values_[static_cast<size_t>(at - names_.begin())];
    if (slot.given) fail(fmt::format("{}() got multiple values for argument '{}'", function, each.name));
    slot = {true, each.value};
  }
  for (size_t i = 0; i < required; ++i) {
    if (!values_[i].given) fail(fmt::format("{}() missing required argument: '{}'", function, names_[i]));
  }
}

bool Bound::flag(size_t i, bool otherwise) const { return has(i) ? truthy(values_[i].value) : otherwise; }

int64_t Bound::integer(size_t i, int64_t otherwise) const {
  return has(i) ? to_index(values_[i].value, function_) : otherwise;
}

std::string_view Bound::string(size_t i) const {
  const Value& value = values_[i].value;
  if (value.is_undefined()) fail_undefined(value);
  if (!value.is_string()) {
    fail(fmt::format("{}() argument '{}' must be str, not {}", function_, names_[i], type_name(value)));
  }
  return value.as_string();
}

Getter::Getter(Sandbox& sandbox, const Value& attribute) {
  if (attribute.is_none()) return;
  if (!attribute.is_string()) {
    parts_.push_back(attribute);
    return;
  }
  std::string_view rest = attribute.as_string();
  sandbox.char_work(4 * rest.size());
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    const bool is_number = part.size() < 18 && !part.empty() && is_ascii(part) && is_digit(part);
    parts_.push_back(is_number ? Value::integer(std::stoll(std::string(part))) : Value::string(part));
    if (dot == std::string_view::npos) return;
    rest.remove_prefix(dot + 1);
  }
}

Value Getter::get(Sandbox& sandbox, const Value& item, const Value* otherwise) const {
  Value value = item;
  for (const Value& part : parts_) {
    sandbox.step();
    value = get_item(sandbox, value, part);
    if (otherwise != nullptr && value.is_undefined()) value = *otherwise;
  }
  return value;
}

Value ignore_case(Sandbox& sandbox, const Value& value) {
  if (!value.is_string()) return value;
  sandbox.char_work(value.as_string().size());
  return Value::string(sandbox.copy(lower(value.as_string())));
}

}  // namespace quire::jinja
