#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <map>
#include <optional>

#include <fmt/format.h>

#include "text/jinja_ast.h"
#include "text/jinja_functions.h"

namespace quire::jinja {
namespace {

using Type = Token::Type;

/// Of expressions and statements within one another; keeps the stack small whatever the template.
constexpr uint32_t kMaxNesting = 200;

std::string describe(const Token& token) {
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

class Parser {
 public:
  Parser(std::string_view source, const Whitespace& whitespace) : tokens_(tokenize(source, whitespace)) {
    for (const std::string_view name : {"loop", "caller", "varargs", "kwargs"}) intern(name);
  }

  Template run() {
    out_.body = statements({});
    return std::move(out_);
  }

 private:
  class Nest {
   public:
    explicit Nest(Parser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxNesting) parser_.fail_here("the template nests too deeply");
    }
    ~Nest() { --parser_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    Parser& parser_;
  };

  // --- tokens

  const Token& current() const { return tokens_[pos_]; }
  const Token& ahead() const { return tokens_[std::min(pos_ + 1, tokens_.size() - 1)]; }
  const Token& take() {
    const Token& token = tokens_[pos_];
    if (pos_ + 1 < tokens_.size()) ++pos_;
    return token;
  }
  bool is(Type type) const { return current().type == type; }
  bool is_operator(std::string_view text) const { return is(Type::kOperator) && current().text == text; }
  bool is_name(std::string_view text) const { return is(Type::kName) && current().text == text; }
  bool is_any_name(std::initializer_list<std::string_view> names) const {
    for (const std::string_view name : names) {
      if (is_name(name)) return true;
    }
    return false;
  }
  bool skip_operator(std::string_view text) {
    if (!is_operator(text)) return false;
    take();
    return true;
  }
  bool skip_name(std::string_view text) {
    if (!is_name(text)) return false;
    take();
    return true;
  }

  [[noreturn]] static void fail_at(Position at, std::string message) {
    throw Fault{.message = std::move(message), .line = at.line, .column = at.column};
  }
  [[noreturn]] void fail_here(std::string message) const { fail_at(current().at, std::move(message)); }
  [[noreturn]] void fail_expected(std::string_view what) const {
    if (is(Type::kEnd)) fail_here(fmt::format("unexpected end of template, expected '{}'.", what));
    fail_here(fmt::format("expected token '{}', got '{}'", what, describe(current())));
  }
  void expect_operator(std::string_view text) {
    if (!skip_operator(text)) fail_expected(text);
  }
  void expect_name(std::string_view text) {
    if (!skip_name(text)) fail_expected(text);
  }
  const Token& expect(Type type, std::string_view what) {
    if (!is(type)) fail_expected(what);
    return take();
  }

  template <class T, class... Args>
  T* make(Args&&... args) {
    auto node = std::make_unique<T>(std::forward<Args>(args)...);
    T* out = node.get();
    out_.nodes.push_back(std::move(node));
    return out;
  }

  NameId intern(std::string_view name) {
    const auto [at, added] = ids_.try_emplace(std::string(name), static_cast<NameId>(out_.names.size()));
    if (added) out_.names.emplace_back(name);
    return at->second;
  }

  // --- statements

  /// Up to a block that begins with one of `ends` (its name is then current), or to the template's end.
  Body statements(std::initializer_list<std::string_view> ends) {
    const Nest nest(*this);
    Body body;
    while (!is(Type::kEnd)) {
      const Position at = current().at;
      if (is(Type::kData)) {
        body.push_back(make<TextStatement>(at, take().text));
      } else if (is(Type::kVariableBegin)) {
        take();
        body.push_back(make<OutputStatement>(at, tuple_or_expression()));
        expect(Type::kVariableEnd, "end of print statement");
      } else {
        expect(Type::kBlockBegin, "begin of statement block");
        if (is_any_name(ends)) return body;
        statement(body);
        expect(Type::kBlockEnd, "end of statement block");
      }
    }
    if (ends.size() > 0) {
      std::string wanted;
      for (const std::string_view end : ends)
        wanted += fmt::format("{}'{}'", wanted.empty() ? "" : " or ", end);
      fail_here(
          fmt::format("Unexpected end of template. Jinja was looking for the following tags: {}. The "
                      "innermost block that "
                      "needs to be closed is '{}'.",
                      wanted, tags_.empty() ? "" : tags_.back()));
    }
    return body;
  }

  /// The rest of the opening tag, the body, and the name of the closing tag if there is but one.
  Body block(std::initializer_list<std::string_view> ends) {
    skip_operator(":");
    expect(Type::kBlockEnd, "end of statement block");
    Body body = statements(ends);
    if (ends.size() == 1) take();
    return body;
  }

  void statement(Body& body) {
    if (!is(Type::kName)) fail_here("tag name expected");
    const Token& token = current();
    const Position at = token.at;
    const std::string& tag = token.text;
    using Parse = const Statement* (Parser::*)(Position);
    static const std::map<std::string, Parse, std::less<>> kTags = {
        {"for", &Parser::for_statement},     {"if", &Parser::if_statement},
        {"set", &Parser::set_statement},     {"macro", &Parser::macro_statement},
        {"call", &Parser::call_statement},   {"filter", &Parser::filter_statement},
        {"with", &Parser::with_statement},   {"generation", &Parser::generation_statement},
        {"block", &Parser::block_statement}, {"autoescape", &Parser::autoescape_statement},
        {"break", &Parser::jump_statement},  {"continue", &Parser::jump_statement},
    };
    if (tag == "print") {
      print_statement(body);
      return;
    }
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
      fail_at(at, fmt::format("'{}' needs other templates; there are none", tag));
    }
    const auto found = kTags.find(tag);
    if (found == kTags.end()) {
      fail_at(at,
              fmt::format("Encountered unknown tag '{}'.{}", tag,
                          tags_.empty() ? ""
                                        : fmt::format(" The innermost block that needs to be closed is '{}'.",
                                                      tags_.back())));
    }
    tags_.push_back(tag);
    body.push_back((this->*found->second)(at));
    tags_.pop_back();
  }

  void print_statement(Body& body) {
    take();
    bool first = true;
    while (!is(Type::kBlockEnd)) {
      if (!first) expect_operator(",");
      first = false;
      const Position at = current().at;
      body.push_back(make<OutputStatement>(at, expression()));
    }
  }

  const Statement* for_statement(Position at) {
    take();
    auto* out = make<ForStatement>(at);
    out->target = target(true);
    if (writes_loop(out->target)) fail_at(at, "Can't assign to special loop variable in for-loop target");
    expect_name("in");
    out->iterable = tuple_or_expression(false, "recursive");
    if (skip_name("if")) out->filter = expression();
    out->recursive = skip_name("recursive");
    ++loops_;
    out->body = block({"endfor", "else"});
    --loops_;
    if (take().text == "else") out->otherwise = block({"endfor"});
    return out;
  }

  static bool writes_loop(const Expr* target) {
    if (target->kind == Expr::Kind::kName) return static_cast<const NameExpr*>(target)->id == kNameLoop;
    if (target->kind != Expr::Kind::kSequence) return false;
    for (const Expr* item : static_cast<const SequenceExpr*>(target)->items) {
      if (writes_loop(item)) return true;
    }
    return false;
  }

  const Statement* if_statement(Position at) {
    take();
    auto* out = make<IfStatement>(at);
    while (true) {
      const Expr* test = tuple_or_expression(false);
      out->branches.emplace_back(test, block({"elif", "else", "endif"}));
      const std::string& next = take().text;
      if (next == "elif") continue;
      if (next == "else") out->otherwise = block({"endif"});
      return out;
    }
  }

  const Statement* set_statement(Position at) {
    take();
    const Expr* to = target(false, true);
    if (skip_operator("=")) return make<SetStatement>(at, to, tuple_or_expression());
    auto* out = make<SetBlockStatement>(at);
    out->target = to;
    out->filter = filters(nullptr);
    out->body = block({"endset"});
    return out;
  }

  void signature(MacroNode& macro) {
    expect_operator("(");
    while (!is_operator(")")) {
      if (!macro.parameters.empty()) expect_operator(",");
      const Token& name = expect(Type::kName, "name");
      check_assignable(name);
      if (skip_operator("=")) {
        macro.defaults.push_back(expression());
      } else if (!macro.defaults.empty()) {
        fail_here("non-default argument follows default argument");
      }
      macro.parameters.emplace_back(intern(name.text), name.text);
    }
    expect_operator(")");
  }

  void macro_body(MacroNode& macro, std::string_view end) {
    // A break must not leave the macro for a loop around it.
    const uint32_t loops = std::exchange(loops_, 0);
    macros_.push_back(&macro);
    macro.body = block({end});
    macros_.pop_back();
    loops_ = loops;
  }

  const Statement* macro_statement(Position at) {
    take();
    auto* out = make<MacroStatement>(at);
    const Token& name = expect(Type::kName, "name");
    check_assignable(name);
    out->macro.name = name.text;
    out->id = intern(name.text);
    signature(out->macro);
    macro_body(out->macro, "endmacro");
    return out;
  }

  const Statement* call_statement(Position at) {
    take();
    auto* out = make<CallBlockStatement>(at);
    out->caller.name = "caller";
    if (is_operator("(")) signature(out->caller);
    const Expr* call = expression();
    if (call->kind != Expr::Kind::kCall) fail_at(at, "expected call");
    out->call = static_cast<const CallExpr*>(call);
    macro_body(out->caller, "endcall");
    return out;
  }

  const Statement* filter_statement(Position at) {
    take();
    auto* out = make<FilterBlockStatement>(at);
    out->filter = filters(filter(nullptr));
    out->body = block({"endfilter"});
    return out;
  }

  const Statement* with_statement(Position at) {
    take();
    auto* out = make<WithStatement>(at);
    while (!is(Type::kBlockEnd)) {
      if (!out->bindings.empty()) expect_operator(",");
      const Expr* to = target(false);
      expect_operator("=");
      out->bindings.emplace_back(to, expression());
    }
    out->body = block({"endwith"});
    return out;
  }

  const Statement* generation_statement(Position at) {
    take();
    auto* out = make<ScopeStatement>(at);
    const uint32_t loops = std::exchange(loops_, 0);  // transformers makes it a call block
    out->body = block({"endgeneration"});
    loops_ = loops;
    return out;
  }

  const Statement* block_statement(Position at) {
    take();
    auto* out = make<ScopeStatement>(at);
    const std::string name = expect(Type::kName, "name").text;
    out->from_top = !skip_name("scoped");
    skip_name("required");
    const uint32_t loops = std::exchange(loops_, 0);
    out->body = block({"endblock"});
    loops_ = loops;
    skip_name(name);
    return out;
  }

  const Statement* autoescape_statement(Position at) {
    take();
    auto* out = make<ScopeStatement>(at);
    out->autoescape = expression();
    out->body = block({"endautoescape"});
    return out;
  }

  const Statement* jump_statement(Position at) {
    const bool is_break = take().text == "break";
    if (loops_ == 0) fail_at(at, fmt::format("'{}' outside a loop", is_break ? "break" : "continue"));
    return make<JumpStatement>(is_break ? Statement::Kind::kBreak : Statement::Kind::kContinue, at);
  }

  // --- targets of assignments

  static void check_assignable(const Token& name) {
    for (const std::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name.text == constant) fail_at(name.at, fmt::format("can't assign to '{}'", constant));
    }
  }

  const Expr* one_target(bool with_namespace) {
    const Nest nest(*this);
    const Position at = current().at;
    if (skip_operator("(")) {
      const Expr* inner = target(false, with_namespace);
      expect_operator(")");
      return inner;
    }
    const Token& name = expect(Type::kName, "name");
    check_assignable(name);
    if (with_namespace && is_operator(".")) {
      take();
      return make<NamespaceFieldExpr>(at, intern(name.text), expect(Type::kName, "name").text);
    }
    return make<NameExpr>(at, intern(name.text));
  }

  const Expr* target(bool in_for, bool with_namespace = false) {
    const Position at = current().at;
    const Expr* first = one_target(with_namespace);
    if (!is_operator(",")) return first;
    auto* out = make<SequenceExpr>(at, true);
    out->items.push_back(first);
    while (skip_operator(",")) {
      if ((in_for && is_name("in")) || is_operator("=") || is_operator(")") || is(Type::kBlockEnd)) break;
      out->items.push_back(one_target(with_namespace));
    }
    return out;
  }

  // --- expressions, loosest binding first

  const Expr* tuple_or_expression(bool with_conditional = true, std::string_view end_name = {}) {
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

  const Expr* expression() {
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

  const Expr* logic(bool is_and) {
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

  const Expr* negation() {
    if (!is_name("not")) return comparison();
    const Nest nest(*this);
    const Position at = take().at;
    return make<UnaryExpr>(at, UnaryExpr::Op::kNot, negation());
  }

  std::optional<CompareOp> compare_operator() {
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

  const Expr* comparison() {
    const Position at = current().at;
    const Expr* first = sum();
    CompareExpr* out = nullptr;
    while (const std::optional<CompareOp> op = compare_operator()) {
      if (out == nullptr) out = make<CompareExpr>(at, first);
      out->rest.emplace_back(*op, sum());
    }
    return out == nullptr ? first : out;
  }

  using Operators = std::initializer_list<std::pair<std::string_view, BinaryOp>>;

  template <class Operand>
  const Expr* chain(Operators operators, Operand&& operand) {
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

  const Expr* sum() {
    return chain({{"+", BinaryOp::kAdd}, {"-", BinaryOp::kSub}}, [&] { return concatenation(); });
  }

  const Expr* concatenation() {
    const Position at = current().at;
    const Expr* first = product();
    if (!is_operator("~")) return first;
    auto* out = make<ConcatExpr>(at);
    out->parts.push_back(first);
    while (skip_operator("~")) out->parts.push_back(product());
    return out;
  }

  const Expr* product() {
    return chain(
        {{"*", BinaryOp::kMul}, {"/", BinaryOp::kDiv}, {"//", BinaryOp::kFloorDiv}, {"%", BinaryOp::kMod}},
        [&] {
          return chain({{"**", BinaryOp::kPow}}, [&] { return unary(true); });
        });
  }

  const Expr* unary(bool with_filters) {
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

  const Expr* primary() {
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

  const Expr* constant(Position at, const Value& value) {
    auto* out = make<ConstantExpr>(at);
    out->value = value;
    return out;
  }

  const Expr* name_or_constant(const Token& token) {
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

  const Expr* number(const Token& token) {
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

  const Expr* parenthesized() {
    const Position at = take().at;
    const Expr* out = is_operator(")") ? make<SequenceExpr>(at, true) : tuple_or_expression();
    expect_operator(")");
    return out;
  }

  const Expr* list() {
    auto* out = make<SequenceExpr>(take().at, false);
    while (!is_operator("]")) {
      if (!out->items.empty()) expect_operator(",");
      if (is_operator("]")) break;
      out->items.push_back(expression());
    }
    expect_operator("]");
    return out;
  }

  const Expr* dict() {
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

  const Expr* postfix(const Expr* out) {
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

  const Expr* subscript(const Expr* object) {
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

  const Expr* slice_or_index(Position at, const Expr* object) {
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

  const Expr* call(const Expr* callee) {
    auto* out = make<CallExpr>(current().at, callee);
    out->args = call_args();
    return out;
  }

  CallArgs call_args() {
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

  std::string dotted_name() {
    std::string name = expect(Type::kName, "name").text;
    while (skip_operator(".")) name += "." + expect(Type::kName, "name").text;
    return name;
  }

  const Expr* filter(const Expr* operand) {
    auto* out = make<ApplyExpr>(Expr::Kind::kFilter, current().at, operand);
    out->name = dotted_name();
    out->function = find_filter(out->name);
    if (is_operator("(")) out->args = call_args();
    return out;
  }

  const Expr* filters(const Expr* out) {
    while (skip_operator("|")) out = filter(out);
    return out;
  }

  const Expr* filters_and_tests(const Expr* out) {
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

  const Expr* test(const Expr* operand) {
    const Position at = take().at;
    const bool negated = skip_name("not");
    auto* out = make<ApplyExpr>(Expr::Kind::kTest, at, operand);
    out->name = dotted_name();
    out->function = find_test(out->name);
    const bool takes_value = is(Type::kString) || is(Type::kInteger) || is(Type::kFloat) ||
                             is_operator("[") || is_operator("{") ||
                             (is(Type::kName) && !is_any_name({"else", "or", "and"}));
    if (is_operator("(")) {
      out->args = call_args();
    } else if (takes_value) {
      if (is_name("is")) fail_here("You cannot chain multiple tests with is");
      out->args.positional.push_back(postfix(primary()));
    }
    return negated ? make<UnaryExpr>(at, UnaryExpr::Op::kNot, out) : static_cast<const Expr*>(out);
  }

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  uint32_t depth_ = 0;
  uint32_t loops_ = 0;              // around the current statement, within its macro
  std::vector<std::string> tags_;   // open
  std::vector<MacroNode*> macros_;  // whose bodies we are in
  std::map<std::string, NameId, std::less<>> ids_;
  Template out_;
};

}  // namespace

Template parse_template(std::string_view source, const Whitespace& whitespace) {
  return Parser(source, whitespace).run();
}

}  // namespace quire::jinja
