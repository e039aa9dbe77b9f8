#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace quire::sim {

/// A flag that takes one value after the other.
struct SweepAxis {
  std::string flag;  // without dashes: "rate"
  std::vector<std::string> values;
};

/// Reads "rate=1,2,4", "rate=1..40" (whole numbers) or "rate=1..40:3" (the same in steps of 3). Throws Error
/// "--sweep: ..." naming what is wrong, also a value that is there twice.
SweepAxis parse_sweep(std::string_view text);

/// All combinations of a value of each axis, those of the last axis next to one another; one empty
/// combination without axes. Throws Error "--sweep: ..." if there are more than kMostRuns, or an axis is
/// there twice.
std::vector<std::vector<std::string>> combinations(const std::vector<SweepAxis>& axes);
inline constexpr size_t kMostRuns = 10'000;

}  // namespace quire::sim
