#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

// Numbers in a variable number of bytes: LEB128, signed ones with zigzag.
namespace quire::record {

inline void append_leb128(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

inline constexpr size_t kMostLeb128 = 10;  // bytes

/// Removes the number at the beginning of `from` and returns it; nullopt if there is no number of at most 64
/// bits.
inline std::optional<uint64_t> take_leb128(std::string_view& from) {
  uint64_t value = 0;
  for (size_t i = 0; i < from.size() && i < kMostLeb128; ++i) {
    const auto byte = static_cast<uint8_t>(from[i]);
    if (i == kMostLeb128 - 1 && byte > 1) return std::nullopt;
    value |= uint64_t{byte & 0x7FU} << (7 * i);
    if (byte >= 0x80) continue;
    from.remove_prefix(i + 1);
    return value;
  }
  return std::nullopt;
}

inline uint64_t zigzag(int64_t value) {
  return (static_cast<uint64_t>(value) << 1) ^ static_cast<uint64_t>(value >> 63);
}

inline int64_t unzigzag(uint64_t value) {
  return static_cast<int64_t>(value >> 1) ^ -static_cast<int64_t>(value & 1);
}

}  // namespace quire::record
