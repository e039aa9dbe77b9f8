#include "jinja/expression_parser.h"

#include <charconv>
#include <cmath>

#include "jinja/functions.h"

namespace quire::jinja {

ExpressionParser::ExpressionParser(std::string_view source, const Whitespace& whitespace)
    : tokens_(tokenize(source, whitespace)) {
  for (const std::string_view name : {"loop", "caller", "varargs", "kwargs"}) intern(name);
}

std::string ExpressionParser::describe(const Token& token) {
  switch (token.type) {
    case Type::kData:
      return "template data";
    case Type::kVariableBegin:
      return "begin of print statement";
    case Type::kVariableEnd:
      return "end of print statement";
    case Type::kBlockBegin:
      return "begin of statement block";
    case Type::kBlockEnd:
      return "end of statement block";
    case Type::kEnd:
      return "end of template";
    default:
      return token.text;
  }
}

// Loosest binding first.

const Expr* ExpressionParser::tuple_or_expression(bool with_conditional, std::string_view end_name) {
  const Position at = current().at;
  const auto ends = [&] {
    return is(Type::kVariableEnd) || is(Type::kBlockEnd) || is_operator(")") ||
           (!end_name.empty() && is_name(end_name));
  };
  if (ends()) fail_here(fmt::format("Expected an expression, got '{}'", describe(current())));
  const Expr* first = with_conditional ? expression() : logic(false);
  if (!is_operator(",")) return first;
  auto* out = make<SequenceExpr>(at, true);
  out->items.push_back(first);
  while (skip_operator(",")) {
    if (ends()) break;
    out->items.push_back(with_conditional ? expression() : logic(false));
  }
  return out;
}

const Expr* ExpressionParser::expression() {
  const Nest nest(*this);
  const Position at = current().at;
  const Expr* left = logic(false);
  while (skip_name("if")) {
    auto* out = make<ConditionalExpr>(at);
    out->then = left;
    out->test = logic(false);
    if (skip_name("else")) out->otherwise = expression();
    left = out;
  }
  return left;
}

const Expr* ExpressionParser::logic(bool is_and) {
  const Position at = current().at;
  const std::string_view word = is_and ? "and" : "or";
  const auto operand = [&] { return is_and ? negation() : logic(true); };
  const Expr* first = operand();
  if (!is_name(word)) return first;
  auto* out = make<LogicExpr>(at, is_and);
  out->parts.push_back(first);
  while (skip_name(word)) out->parts.push_back(operand());
  return out;
}

const Expr* ExpressionParser::negation() {
  if (!is_name("not")) return comparison();
  const Nest nest(*this);
  const Position at = take().at;
  return make<UnaryExpr>(at, UnaryExpr::Op::kNot, negation());
}

std::optional<CompareOp> ExpressionParser::compare_operator() {
  static const std::map<std::string, CompareOp, std::less<>> kOps = {
      {"==", CompareOp::kEq}, {"!=", CompareOp::kNe}, {"<", CompareOp::kLt},
      {"<=", CompareOp::kLe}, {">", CompareOp::kGt},  {">=", CompareOp::kGe}};
  if (is(Type::kOperator)) {
    const auto found = kOps.find(current().text);
    if (found == kOps.end()) return std::nullopt;
    take();
    return found->second;
  }
  if (skip_name("in")) return CompareOp::kIn;
  if (is_name("not") && ahead().type == Type::kName && ahead().text == "in") {
    take();
    take();
    return CompareOp::kNotIn;
  }
  return std::nullopt;
}

const Expr* ExpressionParser::comparison() {
  const Position at = current().at;
  const Expr* first = sum();
  CompareExpr* out = nullptr;
  while (true) {
    const std::optional<CompareOp> op = compare_operator();
    if (!op) break;
    if (out == nullptr) out = make<CompareExpr>(at, first);
    out->rest.emplace_back(*op, sum());
  }
  return out == nullptr ? first : out;
}

template <class Operand>
const Expr* ExpressionParser::chain(Operators operators, Operand&& operand) {
  const Position at = current().at;
  const Expr* first = operand();
  ArithmeticExpr* out = nullptr;
  while (true) {
    const auto* found = operators.begin();
    while (found != operators.end() && !is_operator(found->first)) ++found;
    if (found == operators.end()) return out == nullptr ? first : out;
    take();
    if (out == nullptr) out = make<ArithmeticExpr>(at, first);
    out->rest.emplace_back(found->second, operand());
  }
}

const Expr* ExpressionParser::sum() {
  return chain({{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}}, [&] { return concatenation(); });
}

const Expr* ExpressionParser::concatenation() {
  const Position at = current().at;
  const Expr* first = product();
  if (!is_operator("~")) return first;
  auto* out = make<ConcatExpr>(at);
  out->parts.push_back(first);
  while (skip_operator("~")) out->parts.push_back(product());
  return out;
}

const Expr* ExpressionParser::product() {
  return chain(
      {{"*", BinaryOp::kMul}, {"/", BinaryOp::kDiv}, {"//", BinaryOp::kFloorDiv}, {"%", BinaryOp::kMod}},
      [&] {
        return chain({{"**", BinaryOp::kPow}}, [&] { return unary(true); });
      });
}

const Expr* ExpressionParser::unary(bool with_filters) {
  const Position at = current().at;
  const Expr* out = nullptr;
  if (is_operator("-") || is_operator("+")) {
    const Nest nest(*this);
    const auto op = take().text == "-" ? UnaryExpr::Op::kNegate : UnaryExpr::Op::kPlus;
    out = make<UnaryExpr>(at, op, unary(false));
  } else {
    out = primary();
  }
  out = postfix(out);
  return with_filters ? filters_and_tests(out) : out;
}

const Expr* ExpressionParser::primary() {
  const Token& token = current();
  switch (token.type) {
    case Type::kName:
      take();
      return name_or_constant(token);
    case Type::kString: {
      auto* out = make<ConstantExpr>(token.at);
      while (is(Type::kString)) out->text += take().text;
      out->value = Value::string(out->text);
      return out;
    }
    case Type::kInteger:
    case Type::kFloat:
      take();
      return number(token);
    case Type::kOperator:
      if (token.text == "(") return parenthesized();
      if (token.text == "[") return list();
      if (token.text == "{") return dict();
      break;
    default:
      break;
  }
  fail_here(fmt::format("unexpected '{}'", describe(token)));
}

const Expr* ExpressionParser::constant(Position at, const Value& value) {
  auto* out = make<ConstantExpr>(at);
  out->value = value;
  return out;
}

const Expr* ExpressionParser::name_or_constant(const Token& token) {
  if (token.text == "true" || token.text == "True") return constant(token.at, Value::boolean(true));
  if (token.text == "false" || token.text == "False") return constant(token.at, Value::boolean(false));
  if (token.text == "none" || token.text == "None") return constant(token.at, Value::none());
  const NameId id = intern(token.text);
  for (MacroNode* macro : macros_) {
    macro->uses_caller = macro->uses_caller || id == kNameCaller;
    macro->uses_varargs = macro->uses_varargs || id == kNameVarargs;
    macro->uses_kwargs = macro->uses_kwargs || id == kNameKwargs;
  }
  return make<NameExpr>(token.at, id);
}

const Expr* ExpressionParser::number(const Token& token) {
  const char* begin = token.text.data();
  const char* end = begin + token.text.size();
  if (token.type == Type::kFloat) {
    double value = 0;
    const auto result = std::from_chars(begin, end, value);
    if (result.ec == std::errc::result_out_of_range) {
      // Python has inf and 0.0 here; which, the sign of the exponent says.
      const bool tiny =
          token.text.find("e-") != std::string::npos || token.text.find("E-") != std::string::npos;
      value = tiny ? 0.0 : HUGE_VAL;
    }
    return constant(token.at, Value::real(value));
  }
  int base = 10;
  if (token.text.size() > 2 && token.text[0] == '0') {
    const char letter = static_cast<char>(token.text[1] | 0x20);
    base = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 10;
    if (base != 10) begin += 2;
  }
  Int value = 0;
  for (const char* c = begin; c != end; ++c) {
    const int digit = *c <= '9' ? *c - '0' : (*c | 0x20) - 'a' + 10;
    if (__builtin_mul_overflow(value, Int{base}, &value) ||
        __builtin_add_overflow(value, Int{digit}, &value)) {
      fail_at(token.at, "integer too large");
    }
  }
  return constant(token.at, Value::integer(value));
}

const Expr* ExpressionParser::parenthesized() {
  const Position at = take().at;
  const Expr* out = is_operator(")") ? make<SequenceExpr>(at, true) : tuple_or_expression();
  expect_operator(")");
  return out;
}

const Expr* ExpressionParser::list() {
  auto* out = make<SequenceExpr>(take().at, false);
  while (!is_operator("]")) {
    if (!out->items.empty()) expect_operator(",");
    if (is_operator("]")) break;
    out->items.push_back(expression());
  }
  expect_operator("]");
  return out;
}

const Expr* ExpressionParser::dict() {
  auto* out = make<DictExpr>(take().at);
  while (!is_operator("}")) {
    if (!out->items.empty()) expect_operator(",");
    if (is_operator("}")) break;
    const Expr* key = expression();
    expect_operator(":");
    out->items.emplace_back(key, expression());
  }
  expect_operator("}");
  return out;
}

const Expr* ExpressionParser::postfix(const Expr* out) {
  while (true) {
    if (is_operator(".") || is_operator("[")) {
      out = subscript(out);
    } else if (is_operator("(")) {
      out = call(out);
    } else {
      return out;
    }
  }
}

const Expr* ExpressionParser::subscript(const Expr* object) {
  const Token& token = take();
  if (token.text == ".") {
    const Token& name = take();
    if (name.type == Type::kName) return make<AttributeExpr>(token.at, object, name.text);
    if (name.type != Type::kInteger) fail_at(name.at, "expected name or number");
    return make<SubscriptExpr>(token.at, object, number(name));
  }
  if (is_operator("]")) fail_here("unexpected ']'");
  const Expr* out = slice_or_index(token.at, object);
  if (is_operator(",")) {
    auto* key = make<SequenceExpr>(token.at, true);
    if (out->kind != Expr::Kind::kSubscript) fail_here("unexpected ','");
    key->items.push_back(static_cast<const SubscriptExpr*>(out)->key);
    while (skip_operator(",")) key->items.push_back(expression());
    out = make<SubscriptExpr>(token.at, object, key);
  }
  expect_operator("]");
  return out;
}

const Expr* ExpressionParser::slice_or_index(Position at, const Expr* object) {
  const Expr* start = is_operator(":") ? nullptr : expression();
  if (!is_operator(":")) return make<SubscriptExpr>(at, object, start);
  auto* out = make<SliceExpr>(at);
  out->object = object;
  out->start = start;
  take();
  if (!is_operator(":") && !is_operator("]")) out->stop = expression();
  if (skip_operator(":") && !is_operator("]")) out->step = expression();
  return out;
}

const Expr* ExpressionParser::call(const Expr* callee) {
  auto* out = make<CallExpr>(current().at, callee);
  out->args = call_args();
  return out;
}

CallArgs ExpressionParser::call_args() {
  const Position at = current().at;
  const auto ensure = [&](bool holds) {
    if (!holds) fail_at(at, "invalid syntax for function call expression");
  };
  expect_operator("(");
  CallArgs args;
  bool first = true;
  while (!is_operator(")")) {
    if (!first) {
      expect_operator(",");
      if (is_operator(")")) break;
    }
    first = false;
    if (skip_operator("*")) {
      ensure(args.star == nullptr && args.double_star == nullptr);
      args.star = expression();
    } else if (skip_operator("**")) {
      ensure(args.double_star == nullptr);
      args.double_star = expression();
    } else if (is(Type::kName) && ahead().type == Type::kOperator && ahead().text == "=") {
      ensure(args.double_star == nullptr);
      std::string name = take().text;
      take();
      args.named.emplace_back(std::move(name), expression());
    } else {
      ensure(args.star == nullptr && args.double_star == nullptr && args.named.empty());
      args.positional.push_back(expression());
    }
  }
  expect_operator(")");
  return args;
}

std::string ExpressionParser::dotted_name() {
  std::string name = expect(Type::kName, "name").text;
  while (skip_operator(".")) name += "." + expect(Type::kName, "name").text;
  return name;
}

const Expr* ExpressionParser::filter(const Expr* operand) {
  auto* out = make<ApplyExpr>(Expr::Kind::kFilter, current().at, operand);
  out->name = dotted_name();
  out->function = find_filter(out->name);
  if (is_operator("(")) out->args = call_args();
  return out;
}

const Expr* ExpressionParser::filters(const Expr* out) {
  while (skip_operator("|")) out = filter(out);
  return out;
}

const Expr* ExpressionParser::filters_and_tests(const Expr* out) {
  while (true) {
    if (is_operator("|")) {
      out = filters(out);
    } else if (is_name("is")) {
      out = test(out);
    } else if (is_operator("(")) {
      out = call(out);
    } else {
      return out;
    }
  }
}

const Expr* ExpressionParser::test(const Expr* operand) {
  const Position at = take().at;
  const bool negated = skip_name("not");
  auto* out = make<ApplyExpr>(Expr::Kind::kTest, at, operand);
  out->name = dotted_name();
  out->function = find_test(out->name);
  const bool takes_value = is(Type::kString) || is(Type::kInteger) || is(Type::kFloat) || is_operator("[") ||
                           is_operator("{") || (is(Type::kName) && !is_any_name({"else", "or", "and"}));
  if (is_operator("(")) {
    out->args = call_args();
  } else if (takes_value) {
    if (is_name("is")) fail_here("You cannot chain multiple tests with is");
    out->args.positional.push_back(postfix(primary()));
  }
  return negated ? make<UnaryExpr>(at, UnaryExpr::Op::kNot, out) : static_cast<const Expr*>(out);
}

}  // namespace quire::jinja
