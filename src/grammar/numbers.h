#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "grammar/expression.h"

namespace quire::grammar {

/// The value of a JSON number: exactly that of any int64_t, uint64_t or double.
using Number = long double;
static_assert(std::numeric_limits<Number>::digits >= 64);

/// Bounds of a JSON number.
struct NumberBounds {
  std::optional<Number> min;
  std::optional<Number> max;
  bool min_exclusive = false;
  bool max_exclusive = false;
  bool none() const { return !min && !max; }
};

/// Any JSON number of at most 19 digits before the point, 17 behind it and an exponent below 100.
Expression any_number();
/// Any integer of at most 19 digits, without point or exponent.
Expression any_integer();

/// The decimal numbers within the bounds, without exponents: at most 15 digits before the point, and behind
/// it as many as the bounds have and some more. Empty if there is none.
std::optional<Expression> numbers_within(const NumberBounds& bounds);

inline constexpr uint64_t kMaxListedMultiples = 1000;

/// The multiples of `multiple` (>= 1) within the bounds. Empty if there is none. With `multiple` > 1 either
/// both bounds are there and at most kMaxListedMultiples lie between them, or `multiple` divides 1000 and the
/// bounds forbid nothing or all negative numbers; else `unsupported` becomes true.
std::optional<Expression> integers_within(const NumberBounds& bounds, uint64_t multiple, bool& unsupported);

}  // namespace quire::grammar
