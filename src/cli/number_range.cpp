#include "cli/number_range.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

#include "cli/usage_error.h"

namespace quire::cli {

std::string decimal(double number) {
  std::string text = fmt::format("{:.9f}", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

std::string number_fault(const std::string& text, double least, double most) {
  char* end = nullptr;
  const double value = std::strtod(text.c_str(), &end);
  const bool is_number = !text.empty() && end == text.c_str() + text.size();
  if (is_number && !std::isfinite(value)) return fmt::format("{} is not a finite number", text);
  if (is_number && value >= least && value <= most) return {};
  // In CLI11's words, which usage_error.h turns into ours.
  return fmt::format("Value {} not in range {} to {}", text, decimal(least), decimal(most));
}

std::string number_range_text(double least, double most) {
  return fmt::format("FLOAT in [{} - {}]", decimal(least), decimal(most));
}

std::string whole_number_fault(const std::string& text) {
  uint64_t value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (failed == std::errc() && end == text.data() + text.size()) return {};
  return fmt::format("'{}' is not a whole number from 0 up, or is too large", shortened(text));
}

}  // namespace quire::cli
