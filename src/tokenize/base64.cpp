#include "tokenize/base64.h"

#include <array>
#include <cstdint>

namespace quire::tokenize {
namespace {

constexpr std::array<int8_t, 256> make_values() {
  std::array<int8_t, 256> values{};
  values.fill(-1);
  int8_t next = 0;
  for (const char c : std::string_view("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/")) {
    values[static_cast<unsigned char>(c)] = next++;
  }
  return values;
}

constexpr std::array<int8_t, 256> kValues = make_values();

}  // namespace

bool append_from_base64(std::string& out, std::string_view text) {
  if (text.size() % 4 != 0) return false;
  size_t digits = text.size();
  for (int padding = 0; padding < 2 && digits > 0 && text[digits - 1] == '='; ++padding) --digits;
  const size_t old_size = out.size();
  out.reserve(old_size + digits * 3 / 4);
  uint32_t bits = 0;
  for (size_t i = 0; i < digits; ++i) {
    const int value = kValues[static_cast<unsigned char>(text[i])];
    if (value < 0) {
      out.resize(old_size);
      return false;
    }
    bits = bits << 6 | static_cast<uint32_t>(value);
    // Every digit but the first of four completes a byte.
    if (i % 4 != 0) out.push_back(static_cast<char>(bits >> (6 - 2 * (i % 4))));
  }
  return true;
}

}  // namespace quire::tokenize
