#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace quire {

// Properties of characters, of Unicode 14 (utf8proc 2.8, PCRE2 10.42).

bool is_white_space(char32_t code);  // the White_Space property
bool is_numeric(char32_t code);      // categories Nd, Nl, No
bool is_mark(char32_t code);         // categories Mn, Mc, Me
bool is_punctuation(char32_t code);  // categories P*, and all of ASCII's punctuation and symbols
/// Letters, marks, decimal digits, connectors and joiners: UTS 18's \w.
bool is_word(char32_t code);

/// Character by character, with the one expansion of SpecialCasing.txt that needs no context (U+0130).
std::string to_lowercase(std::string_view valid);

enum class NormalizationForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };

/// UAX 15. Linear in the length but for runs of combining marks, which are sorted in O(n log n).
std::string to_normalization_form(std::string_view valid, NormalizationForm form);

}  // namespace quire
