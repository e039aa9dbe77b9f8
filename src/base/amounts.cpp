#include "base/amounts.h"

#include <array>
#include <charconv>
#include <system_error>

#include <fmt/format.h>

#include "base/error.h"

namespace quire {

std::string with_commas(uint64_t number) {
  std::string digits = std::to_string(number);
  for (auto at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<size_t>(at), ",");
  return digits;
}

std::string human_bytes(uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits = {"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

uint64_t parse_bytes(std::string_view text, std::string_view flag) {
  double value = 0;
  const auto [end, failed] = std::from_chars(text.data(), text.data() + text.size(), value);
  const std::string_view unit(end, static_cast<size_t>(text.data() + text.size() - end));
  double factor = 1;
  if (unit.starts_with('K') || unit.starts_with('k')) factor = 0x1p10;
  if (unit.starts_with('M')) factor = 0x1p20;
  if (unit.starts_with('G')) factor = 0x1p30;
  if (unit.starts_with('T')) factor = 0x1p40;
  const std::string_view rest = factor > 1 ? unit.substr(1) : unit;
  const bool good_unit = rest.empty() || rest == "iB" || rest == "B";
  if (failed != std::errc() || !good_unit || !(value >= 0) || value * factor > 0x1p60) {
    throw Error(fmt::format("{}: '{}' is not an amount of memory (write 512MiB, 4GiB, ...)", flag, text));
  }
  return static_cast<uint64_t>(value * factor);
}

}  // namespace quire
