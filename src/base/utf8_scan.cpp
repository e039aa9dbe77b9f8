#include "base/utf8_scan.h"

namespace quire {

Utf8Scan scan_utf8(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(bytes[i]); };
  const unsigned char first = byte(0);
  if (first < 0x80) return {Utf8Status::kValid, 1};
  // The second byte's range says what overlong forms, surrogates and the end of Unicode rule out.
  unsigned char low = 0x80;
  unsigned char high = 0xBF;
  uint32_t size = 0;
  if (first >= 0xC2 && first <= 0xDF) {
    size = 2;
  } else if (first >= 0xE0 && first <= 0xEF) {
    size = 3;
    if (first == 0xE0) low = 0xA0;
    if (first == 0xED) high = 0x9F;
  } else if (first >= 0xF0 && first <= 0xF4) {
    size = 4;
    if (first == 0xF0) low = 0x90;
    if (first == 0xF4) high = 0x8F;
  } else {
    return {Utf8Status::kInvalid, 1};
  }
  for (uint32_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Status::kIncomplete, i};
    if (byte(i) < low || byte(i) > high) return {Utf8Status::kInvalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::kValid, size};
}

}  // namespace quire
