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
    return fmt::format("Value {} not in range {} to {}", text, least, most);
  };
  return CLI::Validator(fmt::format("FLOAT in [{} - {}]", least, most)).operation(check);
}

}  // namespace quire::cli
