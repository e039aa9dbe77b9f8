#include <algorithm>
#include <iterator>

#include <fmt/format.h>

#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"
#include "jinja/text.h"

// What may stand after `is`.
namespace quire::jinja {
namespace {

void no_arguments(const Args& args) { const Bound bound("test", args, {}); }

template <bool (*Test)(const Value&)>
Value simple(Interpreter&, const Value& self, const Args& args) {
  no_arguments(args);
  return Value::boolean(Test(self));
}

template <CompareOp Op>
Value comparing(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("test", args, {"other"}, 1);
  return Value::boolean(compare(interpreter.sandbox(), Op, self, bound[0]));
}

bool is_defined(const Value& value) { return !value.is_undefined(); }
bool is_undefined(const Value& value) { return value.is_undefined(); }
bool is_none(const Value& value) { return value.is_none(); }
bool is_boolean(const Value& value) { return value.is(Kind::kBool); }
bool is_true(const Value& value) { return value.is(Kind::kBool) && value.as_bool(); }
bool is_false(const Value& value) { return value.is(Kind::kBool) && !value.as_bool(); }
bool is_integer(const Value& value) { return value.is(Kind::kInt); }
bool is_float(const Value& value) { return value.is(Kind::kFloat); }
bool is_number(const Value& value) { return value.is_number(); }
bool is_string(const Value& value) { return value.is_string(); }
bool is_mapping(const Value& value) { return value.is(Kind::kDict); }
bool is_escaped(const Value& value) { return value.is_markup(); }

bool is_sequence(const Value& value) {
  return value.is_undefined() || value.is_string() || value.is_sequence() || value.is(Kind::kDict) ||
         value.is(Kind::kRange);
}

bool is_callable(const Value& value) {
  return value.is(Kind::kMacro) || value.is(Kind::kFunction) || value.is(Kind::kLoop) || value.is_undefined();
}

Value remainder(Interpreter& interpreter, const Value& self, const Value& by) {
  return arithmetic(interpreter.sandbox(), BinaryOp::kMod, self, by);
}

template <int Rest>
Value parity(Interpreter& interpreter, const Value& self, const Args& args) {
  no_arguments(args);
  return Value::boolean(
      equal(interpreter.sandbox(), remainder(interpreter, self, Value::integer(2)), Value::integer(Rest)));
}

Value test_divisible(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("divisibleby", args, {"num"}, 1);
  return Value::boolean(
      equal(interpreter.sandbox(), remainder(interpreter, self, bound[0]), Value::integer(0)));
}

template <bool (*Test)(std::string_view)>
Value text_test(Interpreter& interpreter, const Value& self, const Args& args) {
  no_arguments(args);
  const std::string_view text = to_str(interpreter.sandbox(), self);
  interpreter.sandbox().char_work(text.size());
  return Value::boolean(Test(text));
}

Value test_same(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("sameas", args, {"other"}, 1);
  if (self.is_string()) interpreter.sandbox().work(self.as_string().size());
  return Value::boolean(identical(self, bound[0]));
}

Value test_in(Interpreter& interpreter, const Value& self, const Args& args) {
  const Bound bound("in", args, {"seq"}, 1);
  return Value::boolean(contains(interpreter.sandbox(), bound[0], self));
}

void check_hashable(const Value& value) {
  if (value.is(Kind::kList) || value.is(Kind::kDict) || value.is(Kind::kView)) {
    fail(fmt::format("unhashable type: '{}'", type_name(value)));
  }
}

Value test_filter(Interpreter&, const Value& self, const Args& args) {
  no_arguments(args);
  check_hashable(self);
  return Value::boolean(self.is_string() && find_filter(self.as_string()) != nullptr);
}

Value test_test(Interpreter&, const Value& self, const Args& args) {
  no_arguments(args);
  check_hashable(self);
  return Value::boolean(self.is_string() && find_test(self.as_string()) != nullptr);
}

constexpr NamedFunction kTests[] = {
    {"odd", parity<1>},
    {"even", parity<0>},
    {"divisibleby", test_divisible},
    {"defined", simple<is_defined>},
    {"undefined", simple<is_undefined>},
    {"filter", test_filter},
    {"test", test_test},
    {"none", simple<is_none>},
    {"boolean", simple<is_boolean>},
    {"false", simple<is_false>},
    {"true", simple<is_true>},
    {"integer", simple<is_integer>},
    {"float", simple<is_float>},
    {"lower", text_test<is_lower>},
    {"upper", text_test<is_upper>},
    {"string", simple<is_string>},
    {"mapping", simple<is_mapping>},
    {"number", simple<is_number>},
    {"sequence", simple<is_sequence>},
    {"iterable", simple<is_iterable>},
    {"callable", simple<is_callable>},
    {"sameas", test_same},
    {"escaped", simple<is_escaped>},
    {"in", test_in},
    {"==", comparing<CompareOp::kEq>},
    {"eq", comparing<CompareOp::kEq>},
    {"equalto", comparing<CompareOp::kEq>},
    {"!=", comparing<CompareOp::kNe>},
    {"ne", comparing<CompareOp::kNe>},
    {">", comparing<CompareOp::kGt>},
    {"gt", comparing<CompareOp::kGt>},
    {"greaterthan", comparing<CompareOp::kGt>},
    {">=", comparing<CompareOp::kGe>},
    {"ge", comparing<CompareOp::kGe>},
    {"<", comparing<CompareOp::kLt>},
    {"lt", comparing<CompareOp::kLt>},
    {"lessthan", comparing<CompareOp::kLt>},
    {"<=", comparing<CompareOp::kLe>},
    {"le", comparing<CompareOp::kLe>},
};

}  // namespace

NativeFunction find_test(std::string_view name) {
  const auto* found = std::find_if(std::begin(kTests), std::end(kTests),
                                   [&](const NamedFunction& each) { return each.name == name; });
  return found == std::end(kTests) ? nullptr : found->call;
}

}  // namespace quire::jinja
