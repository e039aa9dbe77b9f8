#pragma once

#include <ctime>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "jinja/ast.h"
#include "jinja/sandbox.h"
#include "jinja/value.h"

namespace quire::jinja {

/// One set of variables; loops, macros and blocks open a nested scope.
struct Scope {
  struct Variable {
    NameId id = 0;
    Value value;
  };
  Scope* parent = nullptr;
  bool is_captured = false;         // a macro refers to it, so it must not be reused for the next iteration
  std::span<Variable> variables{};  // capacity
  size_t size = 0;
};

/// The `loop` variable.
struct Loop {
  const ForStatement* statement = nullptr;
  Scope* scope = nullptr;         // the scope around the loop
  Scope* filter_scope = nullptr;  // for the loop's filter, if it has one
  Interpreter* interpreter = nullptr;
  Value source{};
  Walk walk;
  int64_t depth0 = 0;
  int64_t index0 = -1;
  bool has_after = false;  // one item is read ahead
  bool has_length = false;
  bool passed_filter = false;  // `walk` goes over items that have passed the filter
  bool has_changed = false;
  size_t length = 0;
  Value before{};
  Value current{};
  Value after{};
  Value changed{};
};

/// Renders one template once.
class Interpreter {
 public:
  /// `extra`: variables that `context` may override (bos_token and the like). Both must outlive the
  /// rendering.
  Interpreter(const Tree& source, const json::object& context, const json::object& extra,
              const Limits& limits, const RenderClock& clock);

  /// Throws Fault.
  std::string run();

  Sandbox& sandbox() { return sandbox_; }
  const RenderClock& clock() const { return clock_; }

  Value call(const Value& callee, const Args& args);
  Value call_filter(std::string_view name, const Value& value, const Args& args);
  bool call_test(std::string_view name, const Value& value, const Args& args);

  /// The next item that passes the loop's filter.
  bool advance(Loop& loop, Value& out);

 private:
  enum class Flow : uint8_t { kOn, kBreak, kContinue };
  class Capture;

  Flow run_body(const Body& body, Scope& scope);
  Flow execute(const Statement& statement, Scope& scope);
  Flow run_for(const ForStatement& statement, Scope& scope);
  Flow run_loop(const ForStatement& statement, Scope& scope, const Value& iterable, int64_t depth0);
  Flow run_if(const IfStatement& statement, Scope& scope);
  Flow run_scope(const ScopeStatement& statement, Scope& scope);
  void run_with(const WithStatement& statement, Scope& scope);
  void set_block(const SetBlockStatement& statement, Scope& scope);
  void call_block(const CallBlockStatement& statement, Scope& scope);
  void filter_block(const FilterBlockStatement& statement, Scope& scope);
  Value captured(const Body& body, Scope& scope);
  void emit(std::string_view text);
  void output(const Value& value);
  void assign(const Expr& target, const Value& value, Scope& scope);

  Value evaluate(const Expr& expr, Scope& scope);
  Value evaluate_inner(const Expr& expr, Scope& scope);
  Value evaluate_name(const NameExpr& expr, Scope& scope);
  Value evaluate_arithmetic(const ArithmeticExpr& expr, Scope& scope);
  Value evaluate_concat(const ConcatExpr& expr, Scope& scope);
  Value evaluate_compare(const CompareExpr& expr, Scope& scope);
  Value evaluate_conditional(const ConditionalExpr& expr, Scope& scope);
  Value evaluate_slice(const SliceExpr& expr, Scope& scope);
  Value evaluate_call(const CallExpr& expr, Scope& scope, const Value* caller);
  Value evaluate_apply(const ApplyExpr& expr, Scope& scope, const Value* operand);
  Value evaluate_sequence(const SequenceExpr& expr, Scope& scope);
  Value evaluate_dict(const DictExpr& expr, Scope& scope);
  Value evaluate_filters(const Expr& expr, Scope& scope, const Value& operand);
  Args evaluate_args(const CallArgs& args, Scope& scope);

  Value call_macro(const Macro& macro, const Args& args);
  Value blocks();
  Value make_macro(const MacroNode& node, Scope& scope);

  Value* find_variable(Scope& scope, NameId id);
  void set_variable(Scope& scope, NameId id, const Value& value);
  Scope make_scope(Scope& parent) { return Scope{.parent = &parent, .variables = {}}; }
  Value to_value(const json::value& value);
  const Value& context_value(NameId id);

  const Tree& tree_;
  const json::object& context_;
  const json::object& extra_;
  Sandbox sandbox_;
  RenderClock clock_;
  std::string text_;
  std::string* out_ = &text_;
  Scope* top_ = nullptr;
  std::vector<std::optional<Value>> context_values_;  // by NameId
};

// The attributes and the text of values that the interpreter defines.
std::optional<Value> loop_attribute(Sandbox& sandbox, const Value& value, std::string_view name);
size_t loop_length(Sandbox& sandbox, Loop& loop);
void append_loop(Sandbox& sandbox, std::string& out, Loop& loop);
std::optional<Value> macro_attribute(Sandbox& sandbox, const Value& value, std::string_view name);
std::string macro_name_repr(const Value& value);

}  // namespace quire::jinja
