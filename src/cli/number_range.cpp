#include "cli/number_range.h"

#include <charconv>
#include <cmath>
#include <cstdint>
#include <string>

#include <fmt/format.h>

#include "cli/usage_error.h"

namespace quire::cli {

CLI::Validator number_range(double least, double most) {
  const auto check = [=](const std::string& text) {
    double value = 0;
    if (!CLI::detail::lexical_cast(text, value)) return fmt::format("'{}' is no number", text);
    if (!std::isfinite(value)) return fmt::format("{} is no finite number", text);
    if (value >= least && value <= most) return std::string();
    return fmt::format("Value {} not in range {} to {}", text, decimal(least), decimal(most));
  };
  return CLI::Validator(fmt::format("FLOAT in [{} - {}]", decimal(least), decimal(most))).operation(check);
}

std::string decimal(double number) {
  std::string text = fmt::format("{:.9f}", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

CLI::Validator whole_number() {
  const auto check = [](const std::string& text) {
    uint64_t value = 0;
    const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (failed == std::errc() && end == text.data() + text.size()) return std::string();
    return fmt::format("'{}' is no whole number from 0 up, or too large", shortened(text));
  };
  return CLI::Validator("").operation(check);
}

}  // namespace quire::cli
