#pragma once

#include <cstdint>
#include <string_view>

namespace quire {

enum class Utf8Status : uint8_t { kValid, kIncomplete, kInvalid };

struct Utf8Scan {
  Utf8Status status;
  uint32_t size;  // of the character, or of the maximal subpart that stands for one U+FFFD; at least 1
};

/// Looks at the sequence at the head of `bytes` (not empty). kIncomplete: `bytes` ends inside a sequence that
/// could still become a character. Maximal subparts as in the Unicode standard, section 3.9, table 3-7.
Utf8Scan scan_utf8(std::string_view bytes);

}  // namespace quire
