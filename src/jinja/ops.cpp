#include "jinja/ops.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "jinja/functions.h"
#include "jinja/text.h"

namespace quire::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "** or pow()"};

[[noreturn]] void fail_operands(BinaryOp op, const Value& left, const Value& right) {
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  if (op == BinaryOp::kAdd && (left.is_string() || left.is_sequence())) {
    const std::string_view type = left.is_string() ? "str" : type_name(left);
    fail(fmt::format("can only concatenate {} (not \"{}\") to {}", type, type_name(right), type));
  }
  fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", kSymbols[static_cast<size_t>(op)],
                   type_name(left), type_name(right)));
}

Int add_checked(Int left, Int right) {
  Int result = 0;
  if (__builtin_add_overflow(left, right, &result)) fail("integer too large");
  return result;
}

Int subtract_checked(Int left, Int right) {
  Int result = 0;
  if (__builtin_sub_overflow(left, right, &result)) fail("integer too large");
  return result;
}

Int multiply_checked(Int left, Int right) {
  Int result = 0;
  if (__builtin_mul_overflow(left, right, &result)) fail("integer too large");
  return result;
}

Int floor_divide(Int left, Int right) {
  const Int quotient = left / right;
  return left % right != 0 && ((left < 0) != (right < 0)) ? quotient - 1 : quotient;
}

struct Division {
  double quotient;  // rounded down
  double rest;
};

/// divmod() as CPython computes it.
Division divide(double left, double right) {
  double rest = std::fmod(left, right);
  double quotient = (left - rest) / right;
  if (rest == 0.0) {
    rest = std::copysign(0.0, right);
  } else if ((right < 0) != (rest < 0)) {
    rest += right;
    quotient -= 1.0;
  }
  if (quotient == 0.0) return {std::copysign(0.0, left / right), rest};
  const double floored = std::floor(quotient);
  return {quotient - floored > 0.5 ? floored + 1.0 : floored, rest};
}

double float_power(double left, double right) {
  const double out = std::pow(left, right);
  if (std::isinf(out) && std::isfinite(left) && std::isfinite(right)) fail("Numerical result out of range");
  return out;
}

Value int_power(Int base, Int exponent) {
  if (exponent < 0) {
    if (base == 0) fail("0.0 cannot be raised to a negative power");
    return Value::real(float_power(static_cast<double>(base), static_cast<double>(exponent)));
  }
  Int result = 1;
  // A base of -1, 0 or 1 takes any exponent; every other one overflows within 128 squarings.
  while (exponent > 0) {
    if (exponent % 2 != 0) result = multiply_checked(result, base);
    exponent /= 2;
    if (exponent > 0) base = multiply_checked(base, base);
  }
  return Value::integer(result);
}

Value int_arithmetic(BinaryOp op, Int left, Int right) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::integer(add_checked(left, right));
    case BinaryOp::kSub:
      return Value::integer(subtract_checked(left, right));
    case BinaryOp::kMul:
      return Value::integer(multiply_checked(left, right));
    case BinaryOp::kDiv:
      if (right == 0) fail("division by zero");
      return Value::real(static_cast<double>(left) / static_cast<double>(right));
    case BinaryOp::kFloorDiv:
      if (right == 0) fail("integer division or modulo by zero");
      if (right == -1) return Value::integer(subtract_checked(0, left));
      return Value::integer(floor_divide(left, right));
    case BinaryOp::kMod:
      if (right == 0) fail("integer modulo by zero");
      if (right == -1) return Value::integer(0);
      return Value::integer(left - floor_divide(left, right) * right);
    case BinaryOp::kPow:
      return int_power(left, right);
  }
  return {};
}

Value float_arithmetic(BinaryOp op, double left, double right) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value::real(left + right);
    case BinaryOp::kSub:
      return Value::real(left - right);
    case BinaryOp::kMul:
      return Value::real(left * right);
    case BinaryOp::kDiv:
      if (right == 0) fail("float division by zero");
      return Value::real(left / right);
    case BinaryOp::kFloorDiv:
      if (right == 0) fail("float floor division by zero");
      return Value::real(divide(left, right).quotient);
    case BinaryOp::kMod:
      if (right == 0) fail("float modulo");
      return Value::real(divide(left, right).rest);
    case BinaryOp::kPow:
      if (left == 0 && right < 0) fail("0.0 cannot be raised to a negative power");
      if (left < 0 && std::floor(right) != right) fail("a negative number to a fractional power is complex");
      return Value::real(float_power(left, right));
  }
  return {};
}

Value repeat(Sandbox& sandbox, const Value& sequence, Int times) {
  if (times < 0) times = 0;
  if (times > INT64_MAX) fail("cannot fit 'int' into an index-sized integer");
  const uint64_t size = sequence.is_string() ? sequence.as_string().size() : sequence.items().size();
  uint64_t total = 0;
  if (__builtin_mul_overflow(size, static_cast<uint64_t>(times), &total)) total = UINT64_MAX;
  if (total == 0) times = 0;
  if (sequence.is_string()) {
    sandbox.need_string(total);
    std::string out;
    out.reserve(total);
    for (Int i = 0; i < times; ++i) out += sequence.as_string();
    return Value::string(sandbox.copy(out), sequence.is_markup());
  }
  const std::span<Value> out = sandbox.array<Value>(total);
  for (size_t i = 0; i < total; ++i) out[i] = sequence.items()[i % size];
  return Value::sequence(sequence.kind(), out);
}

Value join_strings(Sandbox& sandbox, const Value& left, const Value& right) {
  const bool markup = left.is_markup() || right.is_markup();
  const Value a = markup ? escape(sandbox, left) : left;
  const Value b = markup ? escape(sandbox, right) : right;
  return Value::string(sandbox.concat(a.as_string(), b.as_string()), markup);
}

Value join_sequences(Sandbox& sandbox, const Value& left, const Value& right) {
  const std::span<Value> out = sandbox.array<Value>(left.items().size() + right.items().size());
  std::copy(left.items().begin(), left.items().end(), out.begin());
  std::copy(right.items().begin(), right.items().end(),
            out.begin() + static_cast<std::ptrdiff_t>(left.items().size()));
  return Value::sequence(left.kind(), out);
}

/// What is put into markup: all but numbers as escaped text.
Value escaped_args(Sandbox& sandbox, const Value& args) {
  if (args.is_number() || args.is_undefined()) return args;
  if (args.is(Kind::kTuple)) {
    std::vector<Value> out;
    for (const Value& each : args.items()) out.push_back(each.is_number() ? each : escape(sandbox, each));
    return new_tuple(sandbox, out);
  }
  if (!args.is(Kind::kDict)) return escape(sandbox, args);
  Dict* out = sandbox.make<Dict>();
  for (const auto& [key, value] : args.as<Dict>().entries()) {
    out->set(sandbox, key, value.is_number() ? value : escape(sandbox, value));
  }
  return Value::object(Kind::kDict, out);
}

/// -1, 0, 1; or 2 if not ordered (NaN).
int order_numbers(const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) {
    return left.as_int() < right.as_int() ? -1 : left.as_int() > right.as_int() ? 1 : 0;
  }
  const double a = left.to_double();
  const double b = right.to_double();
  if (std::isnan(a) || std::isnan(b)) return 2;
  if (a == b && left.kind() != right.kind() && std::abs(a) < 1e38) {
    // Rounded to a double the integer is equal, and so the other one is an integer as well: exactly?
    const Int exact_left = left.is_integral() ? left.as_int() : static_cast<Int>(a);
    const Int exact_right = right.is_integral() ? right.as_int() : static_cast<Int>(b);
    return exact_left < exact_right ? -1 : exact_left > exact_right ? 1 : 0;
  }
  return a < b ? -1 : a > b ? 1 : 0;
}

bool equal_items(Sandbox& sandbox, std::span<const Value> left, std::span<const Value> right) {
  if (left.size() != right.size()) return false;
  const Sandbox::Level level(sandbox);
  for (size_t i = 0; i < left.size(); ++i) {
    if (!equal(sandbox, left[i], right[i])) return false;
  }
  return true;
}

bool equal_dicts(Sandbox& sandbox, const Dict& left, const Dict& right) {
  if (left.size() != right.size()) return false;
  const Sandbox::Level level(sandbox);
  for (const Entry& entry : left.entries()) {
    const Value* other = right.find(sandbox, entry.key);
    if (other == nullptr || !equal(sandbox, entry.value, *other)) return false;
  }
  return true;
}

/// Keys and items compare as sets do; values only with themselves.
bool equal_views(Sandbox& sandbox, const Value& left, const Value& right) {
  const View& a = left.as<View>();
  const View& b = right.as<View>();
  if (left.address() == right.address()) return true;
  if (a.part != b.part || a.part == View::Part::kValues || a.dict->size() != b.dict->size()) return false;
  const Sandbox::Level level(sandbox);
  for (const Entry& entry : a.dict->entries()) {
    const Value* other = b.dict->find(sandbox, entry.key);
    if (other == nullptr) return false;
    if (a.part == View::Part::kItems && !equal(sandbox, entry.value, *other)) return false;
  }
  return true;
}

int order(Sandbox& sandbox, const Value& left, const Value& right, std::string_view symbol) {
  sandbox.step();
  if (left.is_number() && right.is_number()) return order_numbers(left, right);
  if (left.is_string() && right.is_string()) {
    sandbox.work(std::min(left.as_string().size(), right.as_string().size()));
    const int sign = left.as_string().compare(right.as_string());  // UTF-8 orders as code points do
    return sign < 0 ? -1 : sign > 0 ? 1 : 0;
  }
  if (left.is_sequence() && left.kind() == right.kind()) {
    const Sandbox::Level level(sandbox);
    const size_t common = std::min(left.items().size(), right.items().size());
    for (size_t i = 0; i < common; ++i) {
      if (equal(sandbox, left.items()[i], right.items()[i])) continue;
      return order(sandbox, left.items()[i], right.items()[i], symbol);
    }
    return left.items().size() < right.items().size()   ? -1
           : left.items().size() > right.items().size() ? 1
                                                        : 0;
  }
  if (left.is_undefined()) fail_undefined(left);
  if (right.is_undefined()) fail_undefined(right);
  fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", symbol, type_name(left),
                   type_name(right)));
}

}  // namespace

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_float() != 0.0;
    case Kind::kString:
      return !value.as_string().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return value.as<Dict>().size() > 0;
    case Kind::kRange:
      return value.as<Range>().size() > 0;
    case Kind::kView:
      return value.as<View>().dict->size() > 0;
    default:
      return true;
  }
}

bool equal(Sandbox& sandbox, const Value& left, const Value& right) {
  sandbox.step();
  if (left.is_number() && right.is_number()) return order_numbers(left, right) == 0;
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      if (left.as_string().size() != right.as_string().size()) return false;
      sandbox.work(left.as_string().size());
      return left.as_string() == right.as_string();
    case Kind::kList:
    case Kind::kTuple:
      return equal_items(sandbox, left.items(), right.items());
    case Kind::kDict:
      return equal_dicts(sandbox, left.as<Dict>(), right.as<Dict>());
    case Kind::kRange: {
      const Range& a = left.as<Range>();
      const Range& b = right.as<Range>();
      if (a.size() != b.size()) return false;
      return a.size() == 0 || (a.start == b.start && (a.size() == 1 || a.step == b.step));
    }
    case Kind::kView:
      return equal_views(sandbox, left, right);
    default:
      return left.address() == right.address();
  }
}

bool identical(const Value& left, const Value& right) {
  if (left.kind() != right.kind()) return false;
  switch (left.kind()) {
    case Kind::kNone:
      return true;
    case Kind::kUndefined:
      return left.missing() == right.missing();
    case Kind::kBool:
    case Kind::kInt:
      return left.as_int() == right.as_int();
    case Kind::kFloat:
      return left.as_float() == right.as_float() ||
             (std::isnan(left.as_float()) && std::isnan(right.as_float()));
    case Kind::kString:
      return left.as_string() == right.as_string();
    case Kind::kList:
    case Kind::kTuple:
      return left.items().data() == right.items().data() && left.items().size() == right.items().size();
    default:
      return left.address() == right.address();
  }
}

bool less(Sandbox& sandbox, const Value& left, const Value& right) {
  return order(sandbox, left, right, "<") == -1;
}

bool compare(Sandbox& sandbox, CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEq:
      return equal(sandbox, left, right);
    case CompareOp::kNe:
      return !equal(sandbox, left, right);
    case CompareOp::kLt:
      return order(sandbox, left, right, "<") == -1;
    case CompareOp::kGt:
      return order(sandbox, left, right, ">") == 1;
    case CompareOp::kLe: {
      const int sign = order(sandbox, left, right, "<=");
      return sign == -1 || sign == 0;
    }
    case CompareOp::kGe: {
      const int sign = order(sandbox, left, right, ">=");
      return sign == 1 || sign == 0;
    }
    case CompareOp::kIn:
      return contains(sandbox, right, left);
    case CompareOp::kNotIn:
      return !contains(sandbox, right, left);
  }
  return false;
}

bool contains(Sandbox& sandbox, const Value& container, const Value& item) {
  if (container.is_string()) {
    if (!item.is_string()) {
      fail(fmt::format("'in <string>' requires string as left operand, not {}", type_name(item)));
    }
    search_work(sandbox, container.as_string(), item.as_string());
    return find_text(container.as_string(), item.as_string()) != std::string_view::npos;
  }
  if (container.is(Kind::kDict)) return container.as<Dict>().find(sandbox, item) != nullptr;
  if (!is_iterable(container))
    fail(fmt::format("argument of type '{}' is not iterable", type_name(container)));
  Walk walk(sandbox, container);
  Value each;
  while (walk.next(sandbox, each)) {
    if (equal(sandbox, each, item)) return true;
  }
  return false;
}

Value arithmetic(Sandbox& sandbox, BinaryOp op, const Value& left, const Value& right) {
  if (left.is_integral() && right.is_integral()) return int_arithmetic(op, left.as_int(), right.as_int());
  if (left.is_number() && right.is_number()) return float_arithmetic(op, left.to_double(), right.to_double());
  if (op == BinaryOp::kAdd) {
    if (left.is_string() && right.is_string()) return join_strings(sandbox, left, right);
    if (left.is_sequence() && left.kind() == right.kind()) return join_sequences(sandbox, left, right);
  }
  if (op == BinaryOp::kMul) {
    if ((left.is_string() || left.is_sequence()) && right.is_integral()) {
      return repeat(sandbox, left, right.as_int());
    }
    if ((right.is_string() || right.is_sequence()) && left.is_integral()) {
      return repeat(sandbox, right, left.as_int());
    }
  }
  if (op == BinaryOp::kMod && left.is_string()) {
    const Value args = left.is_markup() ? escaped_args(sandbox, right) : right;
    const Value out = percent_format(sandbox, left.as_string(), args);
    return Value::string(out.as_string(), left.is_markup());
  }
  fail_operands(op, left, right);
}

Value negate(const Value& value) {
  if (value.is_integral()) return Value::integer(subtract_checked(0, value.as_int()));
  if (value.is(Kind::kFloat)) return Value::real(-value.as_float());
  if (value.is_undefined()) fail_undefined(value);
  fail(fmt::format("bad operand type for unary -: '{}'", type_name(value)));
}

Value plus(const Value& value) {
  if (value.is_integral()) return Value::integer(value.as_int());
  if (value.is(Kind::kFloat)) return value;
  if (value.is_undefined()) fail_undefined(value);
  fail(fmt::format("bad operand type for unary +: '{}'", type_name(value)));
}

}  // namespace quire::jinja
