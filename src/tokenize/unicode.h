#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/utf8.h"  // is_white_space

namespace quire::tokenize {

// Properties of characters in Unicode 14 (utf8proc 2.8, PCRE2 10.42), as in the reference library
// `tokenizers`: "as of Unicode 8" or 9 means that later characters do not have the property.

bool is_numeric(char32_t code);          // categories Nd, Nl, No
bool is_mark(char32_t code);             // categories Mn, Mc, Me, as of Unicode 9
bool is_nonspacing_mark(char32_t code);  // category Mn, as of Unicode 8
bool is_control(char32_t code);          // categories Cc, Cf, Co, as of Unicode 8
bool is_punctuation(char32_t code);  // categories P*, as of Unicode 8, and all ASCII except letters, digits,
                                     // spaces and controls
/// Letters, marks, decimal digits, connectors and joiners: UTS 18's \w.
bool is_word(char32_t code);

/// The end of the extended grapheme cluster (UAX 29) that starts at `begin`.
size_t grapheme_end(std::string_view valid, size_t begin);

/// Character by character, with the one expansion of SpecialCasing.txt that needs no context (U+0130).
std::string to_lowercase(std::string_view valid);

enum class NormalizationForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// UAX 15, as of Unicode 9: later characters are unchanged and separate the characters around them. Linear in
/// the length except for runs of combining marks, which are sorted in O(n log n).
std::string to_normalization_form(std::string_view valid, NormalizationForm form);

}  // namespace quire::tokenize
