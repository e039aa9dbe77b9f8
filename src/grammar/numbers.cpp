#include "grammar/numbers.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace quire::grammar {
namespace {

using Wide = __int128;

constexpr uint32_t kIntegerDigits = 19;
constexpr uint32_t kBoundedDigits = 15;  // before the point of a number with bounds
constexpr uint32_t kMoreDecimals = 6;    // behind those that the bounds have

Expression digits(char first, char last) {
  return one_of(CharSet::of_range(static_cast<unsigned char>(first), static_cast<unsigned char>(last)));
}
Expression any_digits(uint32_t min, uint32_t max) { return repeat(digits('0', '9'), min, max); }

std::string padded(Wide value, size_t width) {
  std::string out;
  for (; value > 0; value /= 10) out += static_cast<char>('0' + static_cast<int>(value % 10));
  while (out.size() < width) out += '0';
  std::ranges::reverse(out);
  return out;
}

Wide power_of_ten(uint32_t exponent) {
  Wide out = 1;
  while (exponent-- > 0) out *= 10;
  return out;
}

/// Texts of as many digits as `low` and `high` have, from `low` to `high`.
Expression between(const std::string& low, const std::string& high) {
  if (low.empty()) return sequence({});
  const auto rest = static_cast<uint32_t>(low.size() - 1);
  const std::string nines(rest, '9');
  const std::string zeros(rest, '0');
  if (low == '0' + zeros && high == '9' + nines) return any_digits(rest + 1, rest + 1);
  const auto first = [](char c) { return text(std::string(1, c)); };
  if (low[0] == high[0]) return sequence({first(low[0]), between(low.substr(1), high.substr(1))});
  std::vector<Expression> ways;
  char begin = low[0];
  char end = high[0];
  if (low.substr(1) != zeros) {
    ways.push_back(sequence({first(begin), between(low.substr(1), nines)}));
    ++begin;
  }
  if (high.substr(1) != nines) --end;
  if (begin <= end) ways.push_back(sequence({digits(begin, end), any_digits(rest, rest)}));
  if (high.substr(1) != nines) ways.push_back(sequence({first(high[0]), between(zeros, high.substr(1))}));
  return choice(std::move(ways));
}

/// The integers from `low` (>= 0) to `high`, without leading zeros.
std::vector<Expression> integers_between(Wide low, Wide high) {
  std::vector<Expression> out;
  for (uint32_t width = 1; width <= 38 && low <= high; ++width) {
    const Wide last = power_of_ten(width) - 1;
    if (low > last) continue;
    const Wide until = std::min(last, high);
    out.push_back(between(padded(low, width), padded(until, width)));
    low = last + 1;
  }
  return out;
}

/// Decimals of up to `width` digits from `low` to `high` (of that many digits), and longer ones between them.
Expression decimals_between(Wide low, Wide high, uint32_t width) {
  std::vector<Expression> ways;
  for (uint32_t shorter = 1; shorter <= width; ++shorter) {
    const Wide unit = power_of_ten(width - shorter);
    const Wide first = (low + unit - 1) / unit;
    const Wide last = high / unit;
    if (first <= last) ways.push_back(between(padded(first, shorter), padded(last, shorter)));
  }
  const Wide open = high == power_of_ten(width) - 1 ? high : high - 1;
  if (low <= open)
    ways.push_back(
        sequence({between(padded(low, width), padded(open, width)), any_digits(1, kMoreDecimals)}));
  return choice(std::move(ways));
}

/// The numbers from `low` to `high`, both in units of 10^-width and not negative.
std::vector<Expression> numbers_between(Wide low, Wide high, uint32_t width) {
  if (low > high) return {};
  const Wide unit = power_of_ten(width);
  const Wide low_whole = low / unit;
  const Wide high_whole = high / unit;
  std::vector<Expression> out = integers_between((low + unit - 1) / unit, high_whole);
  const auto with_decimals = [&](Expression whole, Expression decimals) {
    out.push_back(sequence({std::move(whole), text("."), std::move(decimals)}));
  };
  const auto written = [](Wide whole) { return text(padded(whole, 1)); };
  if (low_whole == high_whole) {
    with_decimals(written(low_whole), decimals_between(low % unit, high % unit, width));
    return out;
  }
  with_decimals(written(low_whole), decimals_between(low % unit, unit - 1, width));
  if (low_whole + 1 < high_whole) {
    with_decimals(choice(integers_between(low_whole + 1, high_whole - 1)),
                  any_digits(1, width + kMoreDecimals));
  }
  with_decimals(written(high_whole), decimals_between(0, high % unit, width));
  return out;
}

/// Both signs: `low` and `high` may be negative.
template <class Between>
std::optional<Expression> signed_between(Wide low, Wide high, const Between& between) {
  std::vector<Expression> ways = high < 0 ? std::vector<Expression>{} : between(std::max<Wide>(low, 0), high);
  if (low < 0) {
    std::vector<Expression> negative = between(high < 0 ? -high : Wide{1}, -low);
    if (!negative.empty()) ways.push_back(sequence({text("-"), choice(std::move(negative))}));
  }
  if (ways.empty()) return std::nullopt;
  return choice(std::move(ways));
}

/// The shortest decimal that has this value: that of a double, or an integer.
std::string shortest(Number value) {
  const auto narrow = static_cast<double>(value);
  return static_cast<Number>(narrow) == value ? fmt::format("{}", narrow) : fmt::format("{:.0f}", value);
}

uint32_t decimals_of(Number value) {
  const std::string written = shortest(value);
  const size_t point = written.find('.');
  if (written.find('e') != std::string::npos) return std::fabs(value) < 1 ? 15 : 0;
  return point == std::string::npos ? 0
                                    : static_cast<uint32_t>(std::min<size_t>(written.size() - point - 1, 15));
}

/// As a reader of JSON takes `value` in units of 10^-width, not negative.
double as_read(Wide value, uint32_t width) {
  std::string digits = padded(value, width + 1);
  digits.insert(digits.size() - width, ".");
  return std::strtod(digits.c_str(), nullptr);
}

/// The least value in units of 10^-width that satisfies `bound` (>= 0) as a lower one, or the largest that
/// satisfies it as an upper one, for readers that take numbers as doubles.
Wide within(Number bound, bool exclusive, uint32_t width, bool lower) {
  Wide out = 0;
  for (const char c : fmt::format("{:.{}f}", static_cast<double>(bound), width)) {
    if (c != '.') out = out * 10 + (c - '0');
  }
  const auto satisfies = [&](Wide value) {
    const double number = as_read(value, width);
    return lower ? (exclusive ? number > bound : number >= bound)
                 : (exclusive ? number < bound : number <= bound);
  };
  for (Wide step = 1; !satisfies(out) && out >= 0; step *= 2) out += lower ? step : -step;
  return out;
}

/// The same for any bound.
Wide scaled(Number bound, bool exclusive, uint32_t width, bool lower) {
  return bound < 0 ? -within(-bound, exclusive, width, !lower) : within(bound, exclusive, width, lower);
}

Expression signed_digits(Expression magnitude) {
  return sequence({repeat(text("-"), 0, 1), std::move(magnitude)});
}

/// No leading zero.
Expression whole_digits(uint32_t most) {
  return choice({text("0"), sequence({digits('1', '9'), any_digits(0, most - 1)})});
}

struct IntegerBounds {
  Wide low;
  Wide high;
  bool has_low;
  bool has_high;
};

IntegerBounds integer_bounds(const NumberBounds& bounds) {
  const Wide most = power_of_ten(kIntegerDigits) - 1;
  IntegerBounds out{-most, most, false, false};
  const Number limit = 1e19L;  // beyond what is written
  if (bounds.min && *bounds.min > -limit) {
    const Number value = std::ceil(std::min(*bounds.min, limit));
    out.low = static_cast<Wide>(value) + (bounds.min_exclusive && value == *bounds.min ? 1 : 0);
    out.has_low = true;
  }
  if (bounds.max && *bounds.max < limit) {
    const Number value = std::floor(std::max(*bounds.max, -limit));
    out.high = static_cast<Wide>(value) - (bounds.max_exclusive && value == *bounds.max ? 1 : 0);
    out.has_high = true;
  }
  return out;
}

}  // namespace

Expression any_integer() { return signed_digits(whole_digits(kIntegerDigits)); }

Expression any_number() {
  const Expression fraction = sequence({text("."), any_digits(1, 17)});
  const Expression exponent =
      sequence({one_of(CharSet::of_range('e', 'e').united(CharSet::of_range('E', 'E'))),
                repeat(one_of(CharSet::of_range('+', '+').united(CharSet::of_range('-', '-'))), 0, 1),
                any_digits(1, 2)});
  return signed_digits(
      sequence({whole_digits(kIntegerDigits), repeat(fraction, 0, 1), repeat(exponent, 0, 1)}));
}

std::optional<Expression> numbers_within(const NumberBounds& bounds) {
  const Number limit = 1e15L;
  uint32_t width = 1;
  if (bounds.min && std::fabs(*bounds.min) < limit)
    width = std::max(width, decimals_of(*bounds.min) + (bounds.min_exclusive ? 2 : 0));
  if (bounds.max && std::fabs(*bounds.max) < limit)
    width = std::max(width, decimals_of(*bounds.max) + (bounds.max_exclusive ? 2 : 0));
  const Wide most = power_of_ten(kBoundedDigits + width) - 1;
  Wide low = -most;
  Wide high = most;
  if (bounds.min && *bounds.min >= limit) return std::nullopt;
  if (bounds.max && *bounds.max <= -limit) return std::nullopt;
  if (bounds.min && *bounds.min > -limit) low = scaled(*bounds.min, bounds.min_exclusive, width, true);
  if (bounds.max && *bounds.max < limit) high = scaled(*bounds.max, bounds.max_exclusive, width, false);
  return signed_between(low, high, [&](Wide from, Wide to) { return numbers_between(from, to, width); });
}

std::optional<Expression> integers_within(const NumberBounds& bounds, uint64_t multiple, bool& unsupported) {
  const IntegerBounds within = integer_bounds(bounds);
  if (within.low > within.high) return std::nullopt;
  if (multiple == 1) return signed_between(within.low, within.high, integers_between);
  const Wide unit = multiple;
  if (within.has_low && within.has_high) {
    const Wide first = within.low >= 0 ? (within.low + unit - 1) / unit : -(-within.low / unit);
    const Wide last = within.high >= 0 ? within.high / unit : -((-within.high + unit - 1) / unit);
    if (first > last) return std::nullopt;
    if (last - first < static_cast<Wide>(kMaxListedMultiples)) {
      std::vector<Expression> listed;
      for (Wide i = first; i <= last; ++i)
        listed.push_back(text((i < 0 ? "-" : "") + padded((i < 0 ? -i : i) * unit, 1)));
      return choice(std::move(listed));
    }
  }
  const bool not_negative = within.has_low && (within.low == 0 || within.low == 1);
  if (1000 % multiple != 0 || within.has_high || (within.has_low && !not_negative)) {
    unsupported = true;
    return std::nullopt;
  }
  std::vector<Expression> endings;
  std::vector<Expression> ways;
  for (uint64_t ending = 0; ending < 1000; ending += multiple) {
    endings.push_back(text(padded(ending, 3)));
    if (ending > 0 || !within.has_low || within.low == 0) ways.push_back(text(padded(ending, 1)));
  }
  ways.push_back(sequence({digits('1', '9'), any_digits(0, kIntegerDigits - 4), choice(std::move(endings))}));
  Expression magnitude = choice(std::move(ways));
  return not_negative ? magnitude : signed_digits(std::move(magnitude));
}

}  // namespace quire::grammar
