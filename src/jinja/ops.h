#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

// Python's operators and protocols on values; errors carry Python's messages.
namespace quire::jinja {

enum class BinaryOp : uint8_t { kAdd, kSub, kMul, kDiv, kFloorDiv, kMod, kPow };
enum class CompareOp : uint8_t { kEq, kNe, kLt, kLe, kGt, kGe, kIn, kNotIn };

bool truthy(const Value& value);
bool equal(Sandbox& sandbox, const Value& left, const Value& right);
/// Python's `is`.
bool identical(const Value& left, const Value& right);
bool less(Sandbox& sandbox, const Value& left, const Value& right);
bool compare(Sandbox& sandbox, CompareOp op, const Value& left, const Value& right);
bool contains(Sandbox& sandbox, const Value& container, const Value& item);

Value arithmetic(Sandbox& sandbox, BinaryOp op, const Value& left, const Value& right);
Value negate(const Value& value);
Value plus(const Value& value);

/// len(); fails where Python's does.
size_t length_of(Sandbox& sandbox, const Value& value);
bool has_length(const Value& value);
bool is_iterable(const Value& value);

/// Iterates over any iterable; allocated in the sandbox or on the stack.
class Walk {
 public:
  /// Fails "'TYPE' object is not iterable".
  Walk(Sandbox& sandbox, const Value& iterable);
  bool next(Sandbox& sandbox, Value& out);

 private:
  Value source_;
  size_t position_ = 0;
};

/// list(): all values of an iterable; a generator is used up.
std::vector<Value> collect(Sandbox& sandbox, const Value& iterable);
Value new_list(Sandbox& sandbox, const std::vector<Value>& items);
Value new_tuple(Sandbox& sandbox, const std::vector<Value>& items);
Value new_iterator(Sandbox& sandbox, std::string_view type, const std::vector<Value>& items);

/// Jinja's obj[key] (falls back to attributes, then undefined) and obj.name (the other way round).
Value get_item(Sandbox& sandbox, const Value& object, const Value& key);
Value get_attribute(Sandbox& sandbox, const Value& object, std::string_view name);
/// Python's obj[start:stop:step]; absent bounds are allowed, undefined bounds are an error.
Value slice(Sandbox& sandbox, const Value& object, const Value& start, const Value& stop, const Value& step);

/// Python's own attributes: methods and fields. Empty if there is none.
std::optional<Value> python_attribute(Sandbox& sandbox, const Value& object, std::string_view name);

/// str() and repr() and json.dumps().
void append_str(Sandbox& sandbox, std::string& out, const Value& value);
void append_repr(Sandbox& sandbox, std::string& out, const Value& value);
std::string_view to_str(Sandbox& sandbox, const Value& value);
std::string float_repr(double value);
std::string int_text(Int value);
std::string string_repr(std::string_view text);
/// ascii() of a repr: non-ASCII characters are escaped.
std::string ascii_escaped(std::string_view repr);

struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  std::optional<std::string> indent;  // one level's
  std::string item_separator = ", ";
  std::string key_separator = ": ";
};
std::string to_json(Sandbox& sandbox, const Value& value, const JsonStyle& style);

/// markupsafe.escape: & < > ' " become entities; markup is unchanged.
Value escape(Sandbox& sandbox, const Value& value);

/// "..." % args, of a tuple, a dict or one value.
Value percent_format(Sandbox& sandbox, std::string_view format, const Value& args);
/// str.format
std::string brace_format(Sandbox& sandbox, std::string_view format, const Args& args);

/// The integer argument called `what`; fails for other types and beyond 64 bits.
int64_t to_index(const Value& value, std::string_view what);

}  // namespace quire::jinja
