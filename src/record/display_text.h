#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/amounts.h"
#include "base/ids.h"

// Formats numbers and untrusted text for display.
namespace quire::record {

/// U+FFFD for each byte that is not part of valid UTF-8.
std::string valid_utf8(std::string_view text);

/// For a terminal: valid UTF-8, in which control characters, invisible characters and those that change the
/// direction of text are escaped as \u{1b}.
std::string printable(std::string_view text);

/// "1 step", "2 steps".
std::string plural(uint64_t count, std::string_view noun);
/// The same for a noun with an irregular plural.
std::string plural(uint64_t count, std::string_view one, std::string_view many);

/// "12.3 ms", "1.25 s", with about three digits.
std::string duration_text(Nanos nanos);

/// Standard base64, padded.
std::string base64(std::string_view bytes);

}  // namespace quire::record
