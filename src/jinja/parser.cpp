#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "jinja/expression_parser.h"

namespace quire::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  Parser(std::string_view source, const Whitespace& whitespace) : ExpressionParser(source, whitespace) {}

  Tree run() {
    out_.body = statements({});
    return std::move(out_);
  }

 private:
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
        {"for", &Parser::for_statement},       {"if", &Parser::if_statement},
        {"set", &Parser::set_statement},       {"macro", &Parser::macro_statement},
        {"call", &Parser::call_statement},     {"filter", &Parser::filter_statement},
        {"with", &Parser::with_statement},     {"generation", &Parser::generation_statement},
        {"block", &Parser::block_statement},   {"break", &Parser::jump_statement},
        {"continue", &Parser::jump_statement},
    };
    if (tag == "print") {
      print_statement(body);
      return;
    }
    if (tag == "include" || tag == "import" || tag == "from" || tag == "extends") {
      fail_at(at, fmt::format("'{}' needs other templates, which do not exist here", tag));
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
      const auto same = [&](const auto& other) { return other.second == name.text; };
      if (std::any_of(macro.parameters.begin(), macro.parameters.end(), same)) {
        fail_at(name.at, fmt::format("duplicate argument '{}' in function definition", name.text));
      }
      if (name.text == "caller" && macro.defaults.empty()) {
        fail_at(name.at, "the special \"caller\" argument must be omitted or be given a default");
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
    if (!blocks_.insert(name).second) fail_at(at, fmt::format("block '{}' defined twice", name));
    out->from_top = !skip_name("scoped");
    skip_name("required");
    const uint32_t loops = std::exchange(loops_, 0);
    out->body = block({"endblock"});
    loops_ = loops;
    skip_name(name);
    MacroNode& callable = out_.blocks.emplace_back();
    callable.name = name;
    callable.body = out->body;
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

  std::set<std::string> blocks_;
  uint32_t loops_ = 0;             // around the current statement, within its macro
  std::vector<std::string> tags_;  // open
};

}  // namespace

Tree parse_template(std::string_view source, const Whitespace& whitespace) {
  return Parser(source, whitespace).run();
}

}  // namespace quire::jinja
