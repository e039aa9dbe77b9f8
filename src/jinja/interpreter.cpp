#include "jinja/interpreter.h"

#include <fmt/format.h>

#include "base/utf8.h"
#include "jinja/functions.h"
#include "jinja/ops.h"

// Statements, variables and the way in; expressions are in evaluate.cpp.
namespace quire::jinja {

/// Redirects what is written for as long as it lives.
class Interpreter::Capture {
 public:
  explicit Capture(Interpreter& interpreter)
      : interpreter_(interpreter), outer_(std::exchange(interpreter.out_, &text_)) {}
  ~Capture() { interpreter_.out_ = outer_; }
  Capture(const Capture&) = delete;
  Capture& operator=(const Capture&) = delete;
  Value text() const { return Value::string(interpreter_.sandbox_.copy(text_)); }

 private:
  Interpreter& interpreter_;
  std::string text_;
  std::string* outer_;
};

Interpreter::Interpreter(const Tree& source, const json::object& context, const json::object& extra,
                         const Limits& limits, const RenderClock& clock)
    : tree_(source),
      context_(context),
      extra_(extra),
      sandbox_(limits),
      clock_(clock),
      context_values_(source.names.size()) {}

std::string Interpreter::run() {
  // Context variables lie outside of all scopes: set at the top shadows them.
  top_ = sandbox_.make<Scope>();
  run_body(tree_.body, *top_);
  return std::move(text_);
}

// --- variables

Value Interpreter::to_value(const json::value& value) {
  const Sandbox::Level level(sandbox_);
  switch (value.kind()) {
    case json::kind::null:
      return Value::none();
    case json::kind::bool_:
      return Value::boolean(value.get_bool());
    case json::kind::int64:
      return Value::integer(value.get_int64());
    case json::kind::uint64:
      return Value::integer(value.get_uint64());
    case json::kind::double_:
      return Value::real(value.get_double());
    case json::kind::string: {
      const std::string_view text(value.get_string().data(), value.get_string().size());
      return Value::string(is_valid_utf8(text) ? text : sandbox_.copy(repair_utf8(text)));
    }
    case json::kind::array: {
      const json::array& array = value.get_array();
      const std::span<Value> items = sandbox_.array<Value>(array.size());
      for (size_t i = 0; i < array.size(); ++i) items[i] = to_value(array[i]);
      return Value::list(items);
    }
    case json::kind::object: {
      Dict* dict = sandbox_.make<Dict>();
      for (const auto& [key, item] : value.get_object()) {
        const std::string_view name(key.data(), key.size());
        const Value name_value = Value::string(is_valid_utf8(name) ? name : sandbox_.copy(repair_utf8(name)));
        dict->set(sandbox_, name_value, to_value(item));
      }
      return Value::object(Kind::kDict, dict);
    }
  }
  return Value::none();
}

const Value& Interpreter::context_value(NameId id) {
  std::optional<Value>& known = context_values_[id];
  if (known) return *known;
  const std::string& name = tree_.names[id];
  if (name == "self") return *(known = blocks());
  const json::value* given = context_.if_contains(name);
  if (given == nullptr) given = extra_.if_contains(name);
  if (given != nullptr) {
    known = to_value(*given);
  } else if (const NamedFunction* function = find_global(name)) {
    known = Value::object(Kind::kFunction, sandbox_.make<Function>(function->name, function->call));
  } else {
    known = Value::undefined(sandbox_.make<Missing>(std::string_view{}, std::string_view{}, name));
  }
  return *known;
}

Value* Interpreter::find_variable(Scope& scope, NameId id) {
  uint64_t looked_at = 0;
  Value* found = nullptr;
  for (Scope* at = &scope; at != nullptr && found == nullptr; at = at->parent) {
    looked_at += 1 + at->size;
    for (size_t i = 0; i < at->size; ++i) {
      if (at->variables[i].id == id) {
        found = &at->variables[i].value;
        break;
      }
    }
  }
  sandbox_.step(looked_at / 16);
  return found;
}

void Interpreter::set_variable(Scope& scope, NameId id, const Value& value) {
  sandbox_.step(scope.size / 16);
  for (size_t i = 0; i < scope.size; ++i) {
    if (scope.variables[i].id == id) {
      scope.variables[i].value = value;
      return;
    }
  }
  if (scope.size == scope.variables.size()) {
    const auto wider = sandbox_.array<Scope::Variable>(scope.size == 0 ? 4 : 2 * scope.size);
    std::copy(scope.variables.begin(), scope.variables.end(), wider.begin());
    scope.variables = wider;
  }
  scope.variables[scope.size++] = {id, value};
}

void Interpreter::assign(const Expr& target, const Value& value, Scope& scope) {
  sandbox_.step();
  switch (target.kind) {
    case Expr::Kind::kName:
      set_variable(scope, static_cast<const NameExpr&>(target).id, value);
      return;
    case Expr::Kind::kNamespaceField: {
      const auto& field = static_cast<const NamespaceFieldExpr&>(target);
      const Value* object = find_variable(scope, field.id);
      const Value& found = object == nullptr ? context_value(field.id) : *object;
      if (!found.is(Kind::kNamespace)) fail("cannot assign attribute on non-namespace object");
      found.as<Dict>().set(sandbox_, Value::string(field.field), value);
      return;
    }
    default: {
      const auto& targets = static_cast<const SequenceExpr&>(target).items;
      if (value.is_undefined() || !is_iterable(value)) {
        if (value.is_undefined())
          fail(fmt::format("not enough values to unpack (expected {}, got 0)", targets.size()));
        fail(fmt::format("cannot unpack non-iterable {} object", type_name(value)));
      }
      Walk walk(sandbox_, value);
      std::vector<Value> parts;
      Value part;
      while (parts.size() <= targets.size() && walk.next(sandbox_, part)) parts.push_back(part);
      if (parts.size() > targets.size()) {
        fail(fmt::format("too many values to unpack (expected {})", targets.size()));
      }
      if (parts.size() < targets.size()) {
        fail(fmt::format("not enough values to unpack (expected {}, got {})", targets.size(), parts.size()));
      }
      for (size_t i = 0; i < targets.size(); ++i) assign(*targets[i], parts[i], scope);
    }
  }
}

// --- output

void Interpreter::emit(std::string_view text) {
  sandbox_.limit_string(out_->size() + text.size());
  sandbox_.work(text.size());
  *out_ += text;
}

void Interpreter::output(const Value& value) {
  if (value.is_string()) {
    emit(value.as_string());
  } else {
    append_str(sandbox_, *out_, value);
  }
}

Value Interpreter::captured(const Body& body, Scope& scope) {
  const Capture capture(*this);
  run_body(body, scope);
  return capture.text();
}

// --- statements

Interpreter::Flow Interpreter::run_body(const Body& body, Scope& scope) {
  for (const Statement* statement : body) {
    sandbox_.step();
    try {
      const Flow flow = execute(*statement, scope);
      if (flow != Flow::kOn) return flow;
    } catch (Fault& fault) {
      if (fault.line == 0) {
        fault.line = statement->at.line;
        fault.column = statement->at.column;
      }
      throw;
    }
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::execute(const Statement& statement, Scope& scope) {
  using Is = Statement::Kind;
  switch (statement.kind) {
    case Is::kText:
      emit(static_cast<const TextStatement&>(statement).text);
      break;
    case Is::kOutput:
      output(evaluate(*static_cast<const OutputStatement&>(statement).value, scope));
      break;
    case Is::kFor:
      return run_for(static_cast<const ForStatement&>(statement), scope);
    case Is::kIf:
      return run_if(static_cast<const IfStatement&>(statement), scope);
    case Is::kSet: {
      const auto& set = static_cast<const SetStatement&>(statement);
      assign(*set.target, evaluate(*set.value, scope), scope);
      break;
    }
    case Is::kSetBlock:
      set_block(static_cast<const SetBlockStatement&>(statement), scope);
      break;
    case Is::kMacro: {
      const auto& macro = static_cast<const MacroStatement&>(statement);
      set_variable(scope, macro.id, make_macro(macro.macro, scope));
      break;
    }
    case Is::kCallBlock:
      call_block(static_cast<const CallBlockStatement&>(statement), scope);
      break;
    case Is::kFilterBlock:
      filter_block(static_cast<const FilterBlockStatement&>(statement), scope);
      break;
    case Is::kWith:
      run_with(static_cast<const WithStatement&>(statement), scope);
      break;
    case Is::kScope:
      return run_scope(static_cast<const ScopeStatement&>(statement), scope);
    case Is::kBreak:
      return Flow::kBreak;
    case Is::kContinue:
      return Flow::kContinue;
  }
  return Flow::kOn;
}

Interpreter::Flow Interpreter::run_if(const IfStatement& statement, Scope& scope) {
  const Sandbox::Level level(sandbox_);
  for (const auto& [test, body] : statement.branches) {
    if (truthy(evaluate(*test, scope))) return run_body(body, scope);
  }
  return run_body(statement.otherwise, scope);
}

Interpreter::Flow Interpreter::run_for(const ForStatement& statement, Scope& scope) {
  const Value iterable = evaluate(*statement.iterable, scope);
  return run_loop(statement, scope, iterable, 0);
}

Interpreter::Flow Interpreter::run_loop(const ForStatement& statement, Scope& scope, const Value& iterable,
                                        int64_t depth0) {
  const Sandbox::Level level(sandbox_);
  Loop* loop = sandbox_.make<Loop>(Loop{.statement = &statement,
                                        .scope = &scope,
                                        .interpreter = this,
                                        .source = iterable,
                                        .walk = Walk(sandbox_, iterable),
                                        .depth0 = depth0});
  if (statement.filter != nullptr) loop->filter_scope = sandbox_.make<Scope>(make_scope(scope));
  Scope* inner = nullptr;
  Value item;
  while (true) {
    if (loop->has_after) {
      item = loop->after;
      loop->has_after = false;
    } else if (!advance(*loop, item)) {
      break;
    }
    ++loop->index0;
    loop->before = loop->current;
    loop->current = item;
    if (inner == nullptr || inner->is_captured) {
      inner = sandbox_.make<Scope>(make_scope(scope));
    } else {
      inner->size = 0;
    }
    set_variable(*inner, kNameLoop, Value::object(Kind::kLoop, loop));
    assign(*statement.target, item, *inner);
    if (run_body(statement.body, *inner) == Flow::kBreak) return Flow::kOn;
  }
  if (loop->index0 >= 0 || statement.otherwise.empty()) return Flow::kOn;
  Scope& otherwise = *sandbox_.make<Scope>(make_scope(scope));
  return run_body(statement.otherwise, otherwise);
}

bool Interpreter::advance(Loop& loop, Value& out) {
  while (loop.walk.next(sandbox_, out)) {
    if (loop.statement->filter == nullptr || loop.passed_filter) return true;
    assign(*loop.statement->target, out, *loop.filter_scope);
    if (truthy(evaluate(*loop.statement->filter, *loop.filter_scope))) return true;
  }
  return false;
}

Interpreter::Flow Interpreter::run_scope(const ScopeStatement& statement, Scope& scope) {
  const Sandbox::Level level(sandbox_);
  Scope& inner = *sandbox_.make<Scope>(make_scope(statement.from_top ? *top_ : scope));
  return run_body(statement.body, inner);
}

void Interpreter::run_with(const WithStatement& statement, Scope& scope) {
  const Sandbox::Level level(sandbox_);
  Scope& inner = *sandbox_.make<Scope>(make_scope(scope));
  for (const auto& [target, value] : statement.bindings) assign(*target, evaluate(*value, scope), inner);
  run_body(statement.body, inner);
}

void Interpreter::set_block(const SetBlockStatement& statement, Scope& scope) {
  const Sandbox::Level level(sandbox_);
  Scope& inner = *sandbox_.make<Scope>(make_scope(scope));
  Value text = captured(statement.body, inner);
  if (statement.filter != nullptr) text = evaluate_filters(*statement.filter, inner, text);
  assign(*statement.target, text, scope);
}

void Interpreter::filter_block(const FilterBlockStatement& statement, Scope& scope) {
  const Sandbox::Level level(sandbox_);
  Scope& inner = *sandbox_.make<Scope>(make_scope(scope));
  output(evaluate_filters(*statement.filter, inner, captured(statement.body, inner)));
}

void Interpreter::call_block(const CallBlockStatement& statement, Scope& scope) {
  const Value caller = make_macro(statement.caller, scope);
  output(evaluate_call(*statement.call, scope, &caller));
}

// --- macros

Value Interpreter::blocks() {
  Dict* dict = sandbox_.make<Dict>();
  for (const MacroNode& block : tree_.blocks) {
    dict->set(sandbox_, Value::string(block.name), make_macro(block, *top_));
  }
  return Value::object(Kind::kBlocks, dict);
}

Value Interpreter::make_macro(const MacroNode& node, Scope& scope) {
  for (Scope* at = &scope; at != nullptr && !at->is_captured; at = at->parent) at->is_captured = true;
  return Value::object(Kind::kMacro, sandbox_.make<Macro>(&node, &scope));
}

Value Interpreter::call_macro(const Macro& macro, const Args& args) {
  const MacroNode& node = *macro.node;
  Scope& scope = *sandbox_.make<Scope>(make_scope(*macro.closure));
  const size_t count = node.parameters.size();
  std::vector<Named> named = args.named;
  const auto take = [&](std::string_view name) -> std::optional<Value> {
    for (size_t i = 0; i < named.size(); ++i) {
      if (named[i].name != name) continue;
      const Value value = named[i].value;
      named.erase(named.begin() + static_cast<std::ptrdiff_t>(i));
      return value;
    }
    return std::nullopt;
  };
  bool found_caller = false;
  for (size_t i = 0; i < count; ++i) {
    const auto& [id, name] = node.parameters[i];
    if (id == kNameCaller) found_caller = true;
    if (i < args.positional.size()) {
      set_variable(scope, id, args.positional[i]);
      continue;
    }
    const size_t first_default = count - node.defaults.size();
    if (const std::optional<Value> given = take(name)) {
      set_variable(scope, id, *given);
    } else if (i >= first_default) {
      set_variable(scope, id, evaluate(*node.defaults[i - first_default], scope));
    } else {
      const std::string hint = fmt::format("parameter '{}' was not provided", name);
      set_variable(scope, id, Value::undefined(sandbox_.make<Missing>(sandbox_.copy(hint))));
    }
  }
  if (node.uses_caller && !found_caller) {
    const std::optional<Value> caller = take("caller");
    set_variable(scope, kNameCaller,
                 caller ? *caller : Value::undefined(sandbox_.make<Missing>("No caller defined")));
  }
  if (node.uses_kwargs) {
    Dict* rest = sandbox_.make<Dict>();
    for (const Named& each : named) rest->set(sandbox_, Value::string(each.name), each.value);
    set_variable(scope, kNameKwargs, Value::object(Kind::kDict, rest));
  } else if (!named.empty()) {
    fail(fmt::format("macro '{}' takes no keyword argument '{}'", node.name, named.front().name));
  }
  if (node.uses_varargs) {
    std::vector<Value> rest;
    for (size_t i = count; i < args.positional.size(); ++i) rest.push_back(args.positional[i]);
    set_variable(scope, kNameVarargs, new_tuple(sandbox_, rest));
  } else if (args.positional.size() > count) {
    fail(fmt::format("macro '{}' takes not more than {} argument(s)", node.name, count));
  }
  return captured(node.body, scope);
}

Value Interpreter::call(const Value& callee, const Args& args) {
  const Sandbox::Level level(sandbox_);
  sandbox_.step();
  switch (callee.kind()) {
    case Kind::kUndefined:
      fail_undefined(callee);
    case Kind::kMacro:
      return call_macro(callee.as<Macro>(), args);
    case Kind::kFunction: {
      const Function& function = callee.as<Function>();
      return function.call(*this, function.self, args);
    }
    case Kind::kLoop: {
      const Loop& loop = callee.as<Loop>();
      if (!loop.statement->recursive) {
        fail("The loop must have the 'recursive' marker to be called recursively.");
      }
      if (args.positional.size() != 1 || !args.named.empty()) fail("loop() takes one argument");
      const Capture capture(*this);
      run_loop(*loop.statement, *loop.scope, args.positional[0], loop.depth0 + 1);
      return capture.text();
    }
    default:
      fail(fmt::format("'{}' object is not callable", type_name(callee)));
  }
}

}  // namespace quire::jinja
