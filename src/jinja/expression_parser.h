#pragma once

#include <algorithm>
#include <initializer_list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "jinja/ast.h"

namespace quire::jinja {

/// The deepest nesting of expressions and statements; bounds the stack for any template.
inline constexpr uint32_t kMaxNesting = 200;

/// Parses the tokens and the expressions of a template; parser.cpp parses the statements with it.
class ExpressionParser {
 protected:
  using Type = Token::Type;

  ExpressionParser(std::string_view source, const Whitespace& whitespace);

  class Nest {
   public:
    explicit Nest(ExpressionParser& parser) : parser_(parser) {
      if (++parser_.depth_ > kMaxNesting) parser_.fail_here("the template nests too deeply");
    }
    ~Nest() { --parser_.depth_; }
    Nest(const Nest&) = delete;
    Nest& operator=(const Nest&) = delete;

   private:
    ExpressionParser& parser_;
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

  static std::string describe(const Token& token);

  // --- expressions

  const Expr* tuple_or_expression(bool with_conditional = true, std::string_view end_name = {});
  const Expr* expression();
  const Expr* logic(bool is_and);
  const Expr* filter(const Expr* operand);
  const Expr* filters(const Expr* out);

  Tree out_;
  std::vector<MacroNode*> macros_;  // the macros whose bodies contain the current position

 private:
  using Operators = std::initializer_list<std::pair<std::string_view, BinaryOp>>;

  template <class Operand>
  const Expr* chain(Operators operators, Operand&& operand);
  const Expr* negation();
  std::optional<CompareOp> compare_operator();
  const Expr* comparison();
  const Expr* sum();
  const Expr* concatenation();
  const Expr* product();
  const Expr* unary(bool with_filters);
  const Expr* primary();
  const Expr* constant(Position at, const Value& value);
  const Expr* name_or_constant(const Token& token);
  const Expr* number(const Token& token);
  const Expr* parenthesized();
  const Expr* list();
  const Expr* dict();
  const Expr* postfix(const Expr* out);
  const Expr* subscript(const Expr* object);
  const Expr* slice_or_index(Position at, const Expr* object);
  const Expr* call(const Expr* callee);
  CallArgs call_args();
  std::string dotted_name();
  const Expr* filters_and_tests(const Expr* out);
  const Expr* test(const Expr* operand);

  std::vector<Token> tokens_;
  size_t pos_ = 0;
  uint32_t depth_ = 0;
  std::map<std::string, NameId, std::less<>> ids_;
};

}  // namespace quire::jinja
