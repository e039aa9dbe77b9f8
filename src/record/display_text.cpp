#include "record/display_text.h"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/utf8.h"

namespace quire::record {
namespace {

/// Control characters, marks of direction, and what has no width.
bool is_hidden(char32_t code) {
  return code < 0x20 || (code >= 0x7F && code < 0xA0) || code == 0xAD || code == 0x61C ||
         (code >= 0x200B && code <= 0x200F) || (code >= 0x2028 && code <= 0x202E) ||
         (code >= 0x2060 && code <= 0x206F) || code == 0xFEFF || (code >= 0xE0000 && code <= 0xE007F);
}

std::string shown(std::string_view text, bool escape_hidden) {
  std::string out;
  while (!text.empty()) {
    if (scan_utf8(text).status != Utf8Status::kValid) {
      out += kReplacementCharacter;
      text.remove_prefix(1);
      continue;
    }
    const Utf8Char character = utf8_at(text, 0);
    if (escape_hidden && is_hidden(character.code)) {
      out += fmt::format("\\u{{{:x}}}", static_cast<uint32_t>(character.code));
    } else {
      out += text.substr(0, character.size);
    }
    text.remove_prefix(character.size);
  }
  return out;
}

}  // namespace

std::string valid_utf8(std::string_view text) { return shown(text, false); }

std::string printable(std::string_view text) { return shown(text, true); }

std::string plural(uint64_t count, std::string_view noun) {
  return fmt::format("{} {}{}", with_commas(count), noun, count == 1 ? "" : "s");
}

std::string plural(uint64_t count, std::string_view one, std::string_view many) {
  return fmt::format("{} {}", with_commas(count), count == 1 ? one : many);
}

std::string duration_text(Nanos nanos) {
  const double seconds = static_cast<double>(nanos) / 1e9;
  const double size = std::abs(seconds);
  const auto digits = [](double value) { return value < 10 ? 2 : value < 100 ? 1 : 0; };
  if (size < 1e-3) return fmt::format("{:.0f} us", seconds * 1e6);
  if (size < 1) return fmt::format("{:.{}f} ms", seconds * 1e3, digits(size * 1e3));
  return fmt::format("{:.{}f} s", seconds, digits(size));
}

std::string base64(std::string_view bytes) {
  static constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const std::string_view part = bytes.substr(i, 3);
    uint32_t bits = 0;
    for (size_t k = 0; k < 3; ++k) bits = bits << 8 | (k < part.size() ? static_cast<uint8_t>(part[k]) : 0U);
    for (size_t k = 0; k < 4; ++k) out += k <= part.size() ? kDigits[bits >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace quire::record
