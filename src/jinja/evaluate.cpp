#include <fmt/format.h>

#include "jinja/functions.h"
#include "jinja/interpreter.h"
#include "jinja/ops.h"

// Expressions.
namespace quire::jinja {

Value Interpreter::evaluate(const Expr& expr, Scope& scope) {
  sandbox_.step();
  if (expr.kind == Expr::Kind::kConstant) return static_cast<const ConstantExpr&>(expr).value;
  if (expr.kind == Expr::Kind::kName) return evaluate_name(static_cast<const NameExpr&>(expr), scope);
  const Sandbox::Level level(sandbox_);
  try {
    return evaluate_inner(expr, scope);
  } catch (Fault& fault) {
    if (fault.line == 0) {
      fault.line = expr.at.line;
      fault.column = expr.at.column;
    }
    throw;
  }
}

Value Interpreter::evaluate_inner(const Expr& expr, Scope& scope) {
  using Is = Expr::Kind;
  switch (expr.kind) {
    case Is::kConstant:
      return static_cast<const ConstantExpr&>(expr).value;
    case Is::kName:
      return evaluate_name(static_cast<const NameExpr&>(expr), scope);
    case Is::kNamespaceField: {
      const auto& field = static_cast<const NamespaceFieldExpr&>(expr);
      const Value* object = find_variable(scope, field.id);
      return get_attribute(sandbox_, object == nullptr ? context_value(field.id) : *object, field.field);
    }
    case Is::kUnary: {
      const auto& unary = static_cast<const UnaryExpr&>(expr);
      const Value value = evaluate(*unary.operand, scope);
      if (unary.op == UnaryExpr::Op::kNot) return Value::boolean(!truthy(value));
      return unary.op == UnaryExpr::Op::kNegate ? negate(value) : plus(value);
    }
    case Is::kArithmetic:
      return evaluate_arithmetic(static_cast<const ArithmeticExpr&>(expr), scope);
    case Is::kConcat:
      return evaluate_concat(static_cast<const ConcatExpr&>(expr), scope);
    case Is::kLogic: {
      const auto& logic = static_cast<const LogicExpr&>(expr);
      Value value;
      for (const Expr* part : logic.parts) {
        value = evaluate(*part, scope);
        if (truthy(value) != logic.is_and) break;
      }
      return value;
    }
    case Is::kCompare:
      return evaluate_compare(static_cast<const CompareExpr&>(expr), scope);
    case Is::kConditional:
      return evaluate_conditional(static_cast<const ConditionalExpr&>(expr), scope);
    case Is::kAttribute: {
      const auto& attribute = static_cast<const AttributeExpr&>(expr);
      return get_attribute(sandbox_, evaluate(*attribute.object, scope), attribute.name);
    }
    case Is::kSubscript: {
      const auto& subscript = static_cast<const SubscriptExpr&>(expr);
      const Value object = evaluate(*subscript.object, scope);
      return get_item(sandbox_, object, evaluate(*subscript.key, scope));
    }
    case Is::kSlice:
      return evaluate_slice(static_cast<const SliceExpr&>(expr), scope);
    case Is::kCall:
      return evaluate_call(static_cast<const CallExpr&>(expr), scope, nullptr);
    case Is::kFilter:
    case Is::kTest:
      return evaluate_apply(static_cast<const ApplyExpr&>(expr), scope, nullptr);
    case Is::kSequence:
      return evaluate_sequence(static_cast<const SequenceExpr&>(expr), scope);
    case Is::kDict:
      return evaluate_dict(static_cast<const DictExpr&>(expr), scope);
  }
  return {};
}

Value Interpreter::evaluate_name(const NameExpr& expr, Scope& scope) {
  const Value* found = find_variable(scope, expr.id);
  return found == nullptr ? context_value(expr.id) : *found;
}

Value Interpreter::evaluate_arithmetic(const ArithmeticExpr& expr, Scope& scope) {
  Value value = evaluate(*expr.first, scope);
  for (const auto& [op, operand] : expr.rest) {
    value = arithmetic(sandbox_, op, value, evaluate(*operand, scope));
  }
  return value;
}

Value Interpreter::evaluate_concat(const ConcatExpr& expr, Scope& scope) {
  std::string text;
  std::vector<Value> parts;
  for (const Expr* part : expr.parts) parts.push_back(evaluate(*part, scope));
  for (const Value& part : parts) append_str(sandbox_, text, part);
  return Value::string(sandbox_.copy(text));
}

Value Interpreter::evaluate_compare(const CompareExpr& expr, Scope& scope) {
  Value left = evaluate(*expr.first, scope);
  for (const auto& [op, operand] : expr.rest) {
    const Value right = evaluate(*operand, scope);
    if (!compare(sandbox_, op, left, right)) return Value::boolean(false);
    left = right;
  }
  return Value::boolean(true);
}

Value Interpreter::evaluate_conditional(const ConditionalExpr& expr, Scope& scope) {
  if (truthy(evaluate(*expr.test, scope))) return evaluate(*expr.then, scope);
  if (expr.otherwise != nullptr) return evaluate(*expr.otherwise, scope);
  const std::string hint =
      fmt::format("the inline if-expression on line {} evaluated to false and no else section was defined.",
                  expr.at.line);
  return Value::undefined(sandbox_.make<Missing>(sandbox_.copy(hint)));
}

Value Interpreter::evaluate_slice(const SliceExpr& expr, Scope& scope) {
  const Value object = evaluate(*expr.object, scope);
  const auto bound = [&](const Expr* each) {
    return each == nullptr ? Value::none() : evaluate(*each, scope);
  };
  const Value start = bound(expr.start);
  const Value stop = bound(expr.stop);
  const Value step = bound(expr.step);
  return slice(sandbox_, object, start, stop, step);
}

Args Interpreter::evaluate_args(const CallArgs& args, Scope& scope) {
  Args out;
  out.positional.reserve(args.positional.size());
  for (const Expr* each : args.positional) out.positional.push_back(evaluate(*each, scope));
  for (const auto& [name, value] : args.named) out.named.push_back({name, evaluate(*value, scope)});
  if (args.star != nullptr) {
    for (const Value& each : collect(sandbox_, evaluate(*args.star, scope))) out.positional.push_back(each);
  }
  if (args.double_star != nullptr) {
    const Value more = evaluate(*args.double_star, scope);
    if (!more.is(Kind::kDict)) {
      fail(fmt::format("argument after ** must be a mapping, not {}", type_name(more)));
    }
    for (const Entry& entry : more.as<Dict>().entries()) {
      if (!entry.key.is_string()) fail("keywords must be strings");
      sandbox_.step();
      out.named.push_back({entry.key.as_string(), entry.value});
    }
  }
  // Few names; a ** of many is paid for.
  sandbox_.step(out.named.size() * out.named.size() / 16);
  for (size_t i = 0; i < out.named.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (out.named[i].name == out.named[k].name) {
        fail(fmt::format("got multiple values for keyword argument '{}'", out.named[i].name));
      }
    }
  }
  return out;
}

Value Interpreter::evaluate_call(const CallExpr& expr, Scope& scope, const Value* caller) {
  const Value callee = evaluate(*expr.callee, scope);
  Args args = evaluate_args(expr.args, scope);
  if (caller != nullptr) args.named.push_back({"caller", *caller});
  return call(callee, args);
}

Value Interpreter::evaluate_apply(const ApplyExpr& expr, Scope& scope, const Value* operand) {
  const Value value = operand != nullptr ? *operand : evaluate(*expr.operand, scope);
  if (expr.function == nullptr) {
    fail(fmt::format("No {} named '{}'.", expr.kind == Expr::Kind::kFilter ? "filter" : "test", expr.name));
  }
  return expr.function(*this, value, evaluate_args(expr.args, scope));
}

/// A chain of filters whose innermost has no operand of its own.
Value Interpreter::evaluate_filters(const Expr& expr, Scope& scope, const Value& operand) {
  const Sandbox::Level level(sandbox_);
  const auto& apply = static_cast<const ApplyExpr&>(expr);
  try {
    if (apply.operand == nullptr) return evaluate_apply(apply, scope, &operand);
    const Value inner = evaluate_filters(*apply.operand, scope, operand);
    return evaluate_apply(apply, scope, &inner);
  } catch (Fault& fault) {
    if (fault.line == 0) {
      fault.line = expr.at.line;
      fault.column = expr.at.column;
    }
    throw;
  }
}

Value Interpreter::evaluate_sequence(const SequenceExpr& expr, Scope& scope) {
  const std::span<Value> items = sandbox_.array<Value>(expr.items.size());
  for (size_t i = 0; i < items.size(); ++i) items[i] = evaluate(*expr.items[i], scope);
  return Value::sequence(expr.is_tuple ? Kind::kTuple : Kind::kList, items);
}

Value Interpreter::evaluate_dict(const DictExpr& expr, Scope& scope) {
  Dict* dict = sandbox_.make<Dict>();
  for (const auto& [key, value] : expr.items) {
    const Value name = evaluate(*key, scope);
    dict->set(sandbox_, name, evaluate(*value, scope));
  }
  return Value::object(Kind::kDict, dict);
}

Value Interpreter::call_filter(std::string_view name, const Value& value, const Args& args) {
  const NativeFunction function = find_filter(name);
  if (function == nullptr) fail(fmt::format("No filter named '{}'.", name));
  sandbox_.step();
  return function(*this, value, args);
}

bool Interpreter::call_test(std::string_view name, const Value& value, const Args& args) {
  const NativeFunction function = find_test(name);
  if (function == nullptr) fail(fmt::format("No test named '{}'.", name));
  sandbox_.step();
  return truthy(function(*this, value, args));
}

}  // namespace quire::jinja
