#include "sim/sweep.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::sim {
namespace {

std::optional<int64_t> whole_number(std::string_view text) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

bool is_decimal(std::string_view text) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

/// The numbers of "1..40" or "1..40:3"; none if `text` has another form.
std::vector<std::string> range_of(std::string_view text) {
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) return {};
  const size_t colon = std::min(text.find(':', dots), text.size());
  const auto low = whole_number(text.substr(0, dots));
  const auto high = whole_number(text.substr(dots + 2, colon - dots - 2));
  const auto step = colon < text.size() ? whole_number(text.substr(colon + 1)) : 1;
  if (!low || !high || !step) {
    // "../a" is a value.
    if (!is_decimal(text.substr(0, dots))) return {};
    throw Error(fmt::format("--sweep: '{}': a range is of whole numbers; list others: 0.5,1,1.5", text));
  }
  if (*step < 1 || *high < *low || *low < 0 || *high > INT32_MAX) {
    throw Error(
        fmt::format("--sweep: '{}': a range is LOW..HIGH or LOW..HIGH:STEP, with 0 <= LOW <= HIGH", text));
  }
  if (static_cast<size_t>((*high - *low) / *step) >= kMostRuns) {
    throw Error(fmt::format("--sweep: '{}': more than {} values", text, kMostRuns));
  }
  std::vector<std::string> values;
  for (int64_t value = *low; value <= *high; value += *step) values.push_back(std::to_string(value));
  return values;
}

}  // namespace

SweepAxis parse_sweep(std::string_view text) {
  const size_t equals = text.find('=');
  SweepAxis axis;
  axis.flag = std::string(text.substr(0, equals));
  while (axis.flag.starts_with('-')) axis.flag.erase(0, 1);
  if (equals == std::string_view::npos || axis.flag.empty() || equals + 1 == text.size()) {
    throw Error(fmt::format("--sweep: '{}' is not FLAG=VALUE,VALUE,... or FLAG=LOW..HIGH", text));
  }
  const std::string_view values = text.substr(equals + 1);
  axis.values = range_of(values);
  for (size_t at = 0; axis.values.empty() || at > 0;) {
    const size_t end = std::min(values.find(',', at), values.size());
    axis.values.emplace_back(values.substr(at, end - at));
    if (axis.values.back().empty()) throw Error(fmt::format("--sweep: '{}' has an empty value", text));
    if (end == values.size()) break;
    at = end + 1;
  }
  std::vector<std::string> sorted = axis.values;
  std::ranges::sort(sorted);
  if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
    throw Error(fmt::format("--sweep: '{}' has {} twice", text, *twice));
  }
  return axis;
}

std::vector<std::vector<std::string>> combinations(const std::vector<SweepAxis>& axes) {
  std::vector<std::vector<std::string>> all = {{}};
  for (size_t i = 0; i < axes.size(); ++i) {
    for (size_t k = 0; k < i; ++k) {
      if (axes[k].flag == axes[i].flag) throw Error(fmt::format("--sweep: {} is given twice", axes[i].flag));
    }
    if (all.size() * axes[i].values.size() > kMostRuns) {
      throw Error(fmt::format("--sweep: more than {} combinations", kMostRuns));
    }
    std::vector<std::vector<std::string>> longer;
    for (const std::vector<std::string>& shorter : all) {
      for (const std::string& value : axes[i].values) {
        longer.push_back(shorter);
        longer.back().push_back(value);
      }
    }
    all = std::move(longer);
  }
  return all;
}

}  // namespace quire::sim
