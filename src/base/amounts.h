#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Numbers and amounts of memory as people write them.
namespace quire {

/// "1,234,567".
std::string with_commas(uint64_t number);

/// "12.3 MiB", "1.2 GiB" (powers of 1024).
std::string human_bytes(uint64_t bytes);

/// 0 of nothing.
constexpr double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

/// Reads "16GiB", "512M" or "1073741824" as bytes. Throws Error naming `flag`.
uint64_t parse_bytes(std::string_view text, std::string_view flag);

}  // namespace quire
