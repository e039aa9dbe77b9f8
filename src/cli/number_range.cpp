#include "cli/number_range.h"

#include <cmath>
#include <string>

#include <fmt/format.h>

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

}  // namespace quire::cli
