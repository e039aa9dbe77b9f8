#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "jinja/lexer.h"
#include "jinja/ops.h"

// The syntax tree of a template. Immutable once parsed; the Tree owns all nodes in a flat list, so that
// destroying a deep tree does not recurse.
namespace quire::jinja {

using NameId = uint32_t;

struct Node {
  explicit Node(Position position) : at(position) {}
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;
  virtual ~Node() = default;
  Position at;
};

struct Expr : Node {
  enum class Kind : uint8_t {
    kConstant,
    kName,
    kNamespaceField,
    kUnary,
    kArithmetic,
    kConcat,
    kLogic,
    kCompare,
    kConditional,
    kAttribute,
    kSubscript,
    kSlice,
    kCall,
    kFilter,
    kTest,
    kSequence,
    kDict,
  };
  Expr(Kind of, Position position) : Node(position), kind(of) {}
  const Kind kind;
};

struct CallArgs {
  std::vector<const Expr*> positional;
  std::vector<std::pair<std::string, const Expr*>> named;
  const Expr* star = nullptr;         // *args
  const Expr* double_star = nullptr;  // **kwargs
};

struct ConstantExpr : Expr {
  explicit ConstantExpr(Position p) : Expr(Kind::kConstant, p) {}
  Value value;  // of a string: refers to `text`
  std::string text;
};
struct NameExpr : Expr {
  NameExpr(Position p, NameId name) : Expr(Kind::kName, p), id(name) {}
  NameId id;
};
/// `ns.field` on the left of `set`.
struct NamespaceFieldExpr : Expr {
  NamespaceFieldExpr(Position p, NameId object, std::string name)
      : Expr(Kind::kNamespaceField, p), id(object), field(std::move(name)) {}
  NameId id;
  std::string field;
};
struct UnaryExpr : Expr {
  enum class Op : uint8_t { kNot, kNegate, kPlus };
  UnaryExpr(Position p, Op what, const Expr* of) : Expr(Kind::kUnary, p), op(what), operand(of) {}
  Op op;
  const Expr* operand;
};
/// first op operand op operand ..., from left to right; long sums are flat.
struct ArithmeticExpr : Expr {
  ArithmeticExpr(Position p, const Expr* head) : Expr(Kind::kArithmetic, p), first(head) {}
  const Expr* first;
  std::vector<std::pair<BinaryOp, const Expr*>> rest;
};
struct ConcatExpr : Expr {
  explicit ConcatExpr(Position p) : Expr(Kind::kConcat, p) {}
  std::vector<const Expr*> parts;
};
struct LogicExpr : Expr {
  LogicExpr(Position p, bool conjunction) : Expr(Kind::kLogic, p), is_and(conjunction) {}
  bool is_and;
  std::vector<const Expr*> parts;
};
struct CompareExpr : Expr {
  CompareExpr(Position p, const Expr* head) : Expr(Kind::kCompare, p), first(head) {}
  const Expr* first;
  std::vector<std::pair<CompareOp, const Expr*>> rest;
};
struct ConditionalExpr : Expr {
  explicit ConditionalExpr(Position p) : Expr(Kind::kConditional, p) {}
  const Expr* test = nullptr;
  const Expr* then = nullptr;
  const Expr* otherwise = nullptr;  // may be absent
};
struct AttributeExpr : Expr {
  AttributeExpr(Position p, const Expr* of, std::string what)
      : Expr(Kind::kAttribute, p), object(of), name(std::move(what)) {}
  const Expr* object;
  std::string name;
};
struct SubscriptExpr : Expr {
  SubscriptExpr(Position p, const Expr* of, const Expr* what)
      : Expr(Kind::kSubscript, p), object(of), key(what) {}
  const Expr* object;
  const Expr* key;
};
/// object[start:stop:step], each of which may be absent.
struct SliceExpr : Expr {
  explicit SliceExpr(Position p) : Expr(Kind::kSlice, p) {}
  const Expr* object = nullptr;
  const Expr* start = nullptr;
  const Expr* stop = nullptr;
  const Expr* step = nullptr;
};
struct CallExpr : Expr {
  CallExpr(Position p, const Expr* of) : Expr(Kind::kCall, p), callee(of) {}
  const Expr* callee;
  CallArgs args;
};
/// A filter or a test; `operand` is absent for the filter of a block.
struct ApplyExpr : Expr {
  ApplyExpr(Kind of, Position p, const Expr* on) : Expr(of, p), operand(on) {}
  const Expr* operand;
  std::string name;
  NativeFunction function = nullptr;  // absent: unknown, an error when it is evaluated
  CallArgs args;
};
struct SequenceExpr : Expr {
  SequenceExpr(Position p, bool tuple) : Expr(Kind::kSequence, p), is_tuple(tuple) {}
  bool is_tuple;
  std::vector<const Expr*> items;
};
struct DictExpr : Expr {
  explicit DictExpr(Position p) : Expr(Kind::kDict, p) {}
  std::vector<std::pair<const Expr*, const Expr*>> items;
};

struct Statement : Node {
  enum class Kind : uint8_t {
    kText,
    kOutput,
    kFor,
    kIf,
    kSet,
    kSetBlock,
    kMacro,
    kCallBlock,
    kFilterBlock,
    kWith,
    kScope,
    kBreak,
    kContinue,
  };
  Statement(Kind of, Position position) : Node(position), kind(of) {}
  const Kind kind;
};
using Body = std::vector<const Statement*>;

struct TextStatement : Statement {
  TextStatement(Position p, std::string data) : Statement(Kind::kText, p), text(std::move(data)) {}
  std::string text;
};
struct OutputStatement : Statement {
  OutputStatement(Position p, const Expr* of) : Statement(Kind::kOutput, p), value(of) {}
  const Expr* value;
};
struct ForStatement : Statement {
  explicit ForStatement(Position p) : Statement(Kind::kFor, p) {}
  const Expr* target = nullptr;
  const Expr* iterable = nullptr;
  const Expr* filter = nullptr;  // may be absent
  bool recursive = false;
  Body body;
  Body otherwise;
};
struct IfStatement : Statement {
  explicit IfStatement(Position p) : Statement(Kind::kIf, p) {}
  std::vector<std::pair<const Expr*, Body>> branches;
  Body otherwise;
};
struct SetStatement : Statement {
  SetStatement(Position p, const Expr* to, const Expr* of)
      : Statement(Kind::kSet, p), target(to), value(of) {}
  const Expr* target;
  const Expr* value;
};
struct SetBlockStatement : Statement {
  explicit SetBlockStatement(Position p) : Statement(Kind::kSetBlock, p) {}
  const Expr* target = nullptr;
  const Expr* filter = nullptr;  // a chain of filters over the captured text; may be absent
  Body body;
};
/// Parameters and body of a macro, or of the caller of a call block.
struct MacroNode {
  std::string name;
  std::vector<std::pair<NameId, std::string>> parameters;
  std::vector<const Expr*> defaults;  // of the last parameters
  Body body;
  bool uses_varargs = false;
  bool uses_kwargs = false;
  bool uses_caller = false;
};
struct MacroStatement : Statement {
  MacroStatement(Position p) : Statement(Kind::kMacro, p) {}
  NameId id = 0;
  MacroNode macro;
};
struct CallBlockStatement : Statement {
  explicit CallBlockStatement(Position p) : Statement(Kind::kCallBlock, p) {}
  const CallExpr* call = nullptr;
  MacroNode caller;
};
struct FilterBlockStatement : Statement {
  explicit FilterBlockStatement(Position p) : Statement(Kind::kFilterBlock, p) {}
  const Expr* filter = nullptr;
  Body body;
};
struct WithStatement : Statement {
  explicit WithStatement(Position p) : Statement(Kind::kWith, p) {}
  std::vector<std::pair<const Expr*, const Expr*>> bindings;
  Body body;
};
/// A body with its own variables: generation, block.
struct ScopeStatement : Statement {
  ScopeStatement(Position p) : Statement(Kind::kScope, p) {}
  bool from_top = false;  // for a block: only the template's variables are visible
  Body body;
};
struct JumpStatement : Statement {
  JumpStatement(Kind of, Position p) : Statement(of, p) {}
};

/// Names that the interpreter itself uses.
enum WellKnown : NameId { kNameLoop, kNameCaller, kNameVarargs, kNameKwargs, kNumWellKnown };

struct Tree {
  Body body;
  std::vector<std::string> names;  // by NameId
  std::vector<MacroNode> blocks;   // for self.NAME()
  std::vector<std::unique_ptr<Node>> nodes;
};

/// Throws Fault with the place. `source` is valid UTF-8.
Tree parse_template(std::string_view source, const Whitespace& whitespace = {});

}  // namespace quire::jinja
