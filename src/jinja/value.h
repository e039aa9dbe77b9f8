#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "jinja/sandbox.h"

// The values of a template: Python's values, as far as templates can use them.
namespace quire::jinja {

class Interpreter;
struct Args;
struct Scope;
struct Loop;
struct MacroNode;

/// Wider than any JSON integer. Python's integers are unbounded; larger ones are refused here.
using Int = __int128;

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kView,
  kIterator,
  kNamespace,
  kBlocks,  // `self`: a Dict of the template's blocks, as macros
  kMacro,
  kFunction,
  kLoop,
};

class Value;

/// The origin of an undefined value, for the error when it is used.
struct Missing {
  std::string_view hint{};         // the whole message, if not empty
  std::string_view object_type{};  // of the object without the attribute; empty for a variable
  std::string_view name{};
  bool is_element = false;  // `name` is the repr of the key of a subscript that is not a string
};

struct Items {
  const Value* data = nullptr;
  size_t size = 0;
};

class Dict;
struct Range {
  int64_t start = 0;
  int64_t stop = 0;
  int64_t step = 1;
  size_t size() const;
  int64_t at(size_t i) const { return start + static_cast<int64_t>(i) * step; }
};
struct View;
struct Iterator;
struct Macro;
struct Function;
/// 32 bytes, trivially copyable; the memory it points to belongs to the sandbox or outlives it.
class Value {
 public:
  Value() : missing_(nullptr) {}  // undefined
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool value) {
    Value out(Kind::kBool);
    out.int_ = value ? 1 : 0;
    return out;
  }
  static Value integer(Int value) {
    Value out(Kind::kInt);
    out.int_ = value;
    return out;
  }
  static Value real(double value) {
    Value out(Kind::kFloat);
    out.float_ = value;
    return out;
  }
  /// `markup`: Python's markupsafe.Markup, which escapes text that is joined to it.
  static Value string(std::string_view value, bool markup = false) {
    Value out(Kind::kString);
    out.tag_ = markup;
    out.text_ = {value.data(), value.size()};
    return out;
  }
  static Value list(std::span<const Value> items) { return sequence(Kind::kList, items); }
  static Value tuple(std::span<const Value> items) { return sequence(Kind::kTuple, items); }
  static Value sequence(Kind kind, std::span<const Value> items) {
    Value out(kind);
    out.items_ = {items.data(), items.size()};
    return out;
  }
  /// groupby's pair, with the attributes `grouper` and `list`.
  static Value group(std::span<const Value> pair) {
    Value out = sequence(Kind::kTuple, pair);
    out.tag_ = true;
    return out;
  }
  static Value undefined(const Missing* missing) {
    Value out(Kind::kUndefined);
    out.missing_ = missing;
    return out;
  }
  template <class T>
  static Value object(Kind kind, T* object) {
    Value out(kind);
    out.object_ = const_cast<std::remove_const_t<T>*>(object);
    return out;
  }

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_markup() const { return tag_ && kind_ == Kind::kString; }
  bool is_group() const { return tag_ && kind_ == Kind::kTuple; }
  /// Whether it is an int in Python's sense: bool is one.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }

  // REQUIRE the kind they name.
  bool as_bool() const { return int_ != 0; }
  Int as_int() const { return int_; }  // also of a bool
  double as_float() const { return float_; }
  double to_double() const { return kind_ == Kind::kFloat ? float_ : static_cast<double>(int_); }
  std::string_view as_string() const { return {text_.data, text_.size}; }
  std::span<const Value> items() const { return {items_.data, items_.size}; }
  const Missing* missing() const { return missing_; }
  template <class T>
  T& as() const {
    return *static_cast<T*>(object_);
  }
  const void* address() const { return object_; }

 private:
  explicit Value(Kind kind) : kind_(kind), int_(0) {}
  struct Text {
    const char* data;
    size_t size;
  };

  Kind kind_ = Kind::kUndefined;
  bool tag_ = false;  // of a string: markup; of a tuple: a group
  union {
    Int int_;
    double float_;
    Text text_;
    Items items_;
    const Missing* missing_;
    void* object_;
  };
};
static_assert(sizeof(Value) == 32 && std::is_trivially_copyable_v<Value>);

struct Entry {
  Value key;
  Value value;
};

/// In order of insertion. Keys are equal as in Python: 1 == 1.0 == True.
class Dict {
 public:
  std::span<const Entry> entries() const { return {entries_.data(), size_}; }
  size_t size() const { return size_; }
  /// nullptr if absent. Fails for a key that Python cannot hash.
  const Value* find(Sandbox& sandbox, const Value& key) const;
  const Value* find(Sandbox& sandbox, std::string_view key) const {
    return find(sandbox, Value::string(key));
  }
  void set(Sandbox& sandbox, const Value& key, const Value& value);

 private:
  size_t locate(Sandbox& sandbox, const Value& key, uint64_t hash) const;
  void index(size_t entry, uint64_t hash);

  std::span<Entry> entries_;  // capacity
  size_t size_ = 0;
  std::span<uint32_t> slots_;  // entry + 1, open addressing; empty while the dict is small
};

/// dict.keys(), .values(), .items()
struct View {
  enum class Part : uint8_t { kKeys, kValues, kItems };
  const Dict* dict;
  Part part;
};

/// A Python generator or iterator: each item can be taken once.
struct Iterator {
  std::string_view type;
  std::span<const Value> items;
  size_t next = 0;
};

struct Macro {
  const MacroNode* node;
  Scope* closure;
};

using NativeFunction = Value (*)(Interpreter&, const Value& self, const Args&);

/// A global function, or a method with its object.
struct Function {
  std::string_view name;
  NativeFunction call;
  Value self{};
};

/// Positional and named arguments of a call.
struct Named {
  std::string_view name;
  Value value;
};
struct Args {
  std::vector<Value> positional;
  std::vector<Named> named;
};

// Names as in Python's errors: "str", "dict"; "dict object", "None".
std::string_view type_name(const Value& value);
std::string undefined_message(const Value& value);
/// Throws the error of using an undefined value.
[[noreturn]] void fail_undefined(const Value& value);

}  // namespace quire::jinja
