#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "jinja/value.h"

namespace quire::jinja {

struct NamedFunction {
  std::string_view name;
  NativeFunction call;
};

/// Filters get the filtered value as `self`, tests the tested one. nullptr if there is none of that name.
NativeFunction find_filter(std::string_view name);
NativeFunction find_test(std::string_view name);
/// range, namespace, dict, raise_exception ...: by name, undefined if there is none.
const NamedFunction* find_global(std::string_view name);

std::span<const NamedFunction> text_filters();      // text_filters.cpp
std::span<const NamedFunction> sequence_filters();  // sequence_filters.cpp
std::span<const NamedFunction> value_filters();     // value_filters.cpp

/// The arguments of one call, matched to the parameters of a native function.
class Bound {
 public:
  /// Fails as Python does for too many, unknown, repeated or missing arguments (the first `required` must be
  /// given).
  Bound(std::string_view function, const Args& args, std::initializer_list<std::string_view> parameters,
        size_t required = 0);

  bool has(size_t i) const { return values_[i].given; }
  /// REQUIRES has(i).
  const Value& operator[](size_t i) const { return values_[i].value; }
  Value or_else(size_t i, const Value& otherwise) const { return has(i) ? values_[i].value : otherwise; }
  /// None counts as absent.
  bool is_given(size_t i) const { return has(i) && !values_[i].value.is_none(); }

  bool flag(size_t i, bool otherwise) const;
  int64_t integer(size_t i, int64_t otherwise) const;
  /// Fails if it is not a string.
  std::string_view string(size_t i) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> names_;
  struct Slot {
    bool given = false;
    Value value{};
  };
  std::vector<Slot> values_;
};

/// A function of values for the `attribute` arguments: "a.b.0", an integer, or None for the value itself.
class Getter {
 public:
  Getter(Sandbox& sandbox, const Value& attribute);
  Value get(Sandbox& sandbox, const Value& item, const Value* otherwise = nullptr) const;

 private:
  std::vector<Value> parts_;
};

[[noreturn]] void fail_needs_text(const Value& value, std::string_view function);
/// str.replace, str.center; `count` < 0: all.
std::string replaced(Sandbox& sandbox, std::string_view text, std::string_view old, std::string_view with,
                     int64_t count);
std::string centered(Sandbox& sandbox, std::string_view text, int64_t width, char32_t fill);
std::string padded(Sandbox& sandbox, std::string_view text, int64_t left, int64_t right, char32_t fill);

/// strip(), and counts its steps.
std::string_view strip_paid(Sandbox& sandbox, std::string_view text, const std::string_view* chars, bool left,
                            bool right);
/// Counts the steps of a search; long needles cost more.
void search_work(Sandbox& sandbox, std::string_view text, std::string_view needle);

/// float(text); empty if Python raises ValueError.
std::optional<double> parse_float(std::string_view text);

/// Strings in lower case, other values unchanged: the keys of case-insensitive sorting.
Value ignore_case(Sandbox& sandbox, const Value& value);

}  // namespace quire::jinja
