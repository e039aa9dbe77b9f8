#pragma once

#include <cstdint>
#include <string>
#include <string_view>

// Numbers for people.
namespace quire {

/// "1,234,567".
std::string with_commas(uint64_t number);

/// "12 B", "12.3 MiB", "1.2 GiB": powers of 1024.
std::string human_bytes(uint64_t bytes);

/// "16GiB", "512M", "1073741824" as bytes. Throws Error naming `flag`.
uint64_t parse_bytes(std::string_view text, std::string_view flag);

}  // namespace quire
