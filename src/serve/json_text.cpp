#include "serve/json_text.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::serve {
namespace {

void append_ascii(std::string& out, char c) {
  switch (c) {
    case '"':
      out += "\\\"";
      return;
    case '\\':
      out += "\\\\";
      return;
    case '\n':
      out += "\\n";
      return;
    case '\r':
      out += "\\r";
      return;
    case '\t':
      out += "\\t";
      return;
    default:
      break;
  }
  if (static_cast<uint8_t>(c) < 0x20 || c == 0x7F) {
    fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
  } else {
    out += c;
  }
}

}  // namespace

void append_json_string(std::string& out, std::string_view bytes) {
  out += '"';
  for (size_t i = 0; i < bytes.size();) {
    if (static_cast<uint8_t>(bytes[i]) < 0x80) {
      append_ascii(out, bytes[i++]);
      continue;
    }
    const Utf8Scan found = scan_utf8(bytes.substr(i));
    out += found.status == Utf8Status::kValid ? bytes.substr(i, found.size) : kReplacementCharacter;
    i += found.size;
  }
  out += '"';
}

void append_json_logprob(std::string& out, float logprob) {
  constexpr float kLowest = -9999.0F;
  // The comparison is false for NaN too.
  fmt::format_to(std::back_inserter(out), "{}", logprob > kLowest ? std::min(logprob, 0.0F) : kLowest);
}

}  // namespace quire::serve
