#pragma once

#include <array>
#include <optional>
#include <string_view>

// Oniguruma's names of character kinds that PCRE2 lacks or defines differently.
namespace quire::tokenize::regex_names {

struct ClassName {
  std::string_view name;
  std::string_view members;  // text for use between [ and ]
};

// Oniguruma's word characters in a set. Outside of sets, and for \b, six numbers of Latin-1 are word
// characters too.
inline constexpr std::string_view kWordInSet = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
inline constexpr std::string_view kWord = R"(\x{b2}\x{b3}\x{b9}\x{bc}-\x{be}\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";

inline constexpr std::array kPosixClasses = {
    ClassName{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    ClassName{"alpha", R"(\p{Alphabetic})"},
    ClassName{"ascii", R"(\x00-\x7f)"},
    ClassName{"cntrl", R"(\p{Cc})"},
    ClassName{"digit", R"(\p{Nd})"},
    ClassName{"lower", R"(\p{Lowercase})"},
    ClassName{"punct", R"(\p{P}\p{S})"},
    ClassName{"space", R"(\p{White_Space})"},
    ClassName{"upper", R"(\p{Uppercase})"},
    ClassName{"word", kWordInSet},
    ClassName{"xdigit", R"(0-9A-Fa-f)"},
};

// Names of \p{...} that PCRE2 lacks or defines differently; in lower case, without spaces, - and _.
inline constexpr std::array kProperties = {
    ClassName{"alnum", R"(\p{Alphabetic}\p{Nd})"},
    ClassName{"alpha", R"(\p{Alphabetic})"},
    ClassName{"digit", R"(\p{Nd})"},
    ClassName{"lower", R"(\p{Lowercase})"},
    ClassName{"punct", R"(\p{P})"},
    ClassName{"space", R"(\p{White_Space})"},
    ClassName{"upper", R"(\p{Uppercase})"},
    ClassName{"word", kWord},
    ClassName{"letter", R"(\p{L})"},
    ClassName{"uppercaseletter", R"(\p{Lu})"},
    ClassName{"lowercaseletter", R"(\p{Ll})"},
    ClassName{"titlecaseletter", R"(\p{Lt})"},
    ClassName{"modifierletter", R"(\p{Lm})"},
    ClassName{"otherletter", R"(\p{Lo})"},
    ClassName{"mark", R"(\p{M})"},
    ClassName{"nonspacingmark", R"(\p{Mn})"},
    ClassName{"spacingmark", R"(\p{Mc})"},
    ClassName{"number", R"(\p{N})"},
    ClassName{"decimalnumber", R"(\p{Nd})"},
    ClassName{"letternumber", R"(\p{Nl})"},
    ClassName{"othernumber", R"(\p{No})"},
    ClassName{"punctuation", R"(\p{P})"},
    ClassName{"symbol", R"(\p{S})"},
    ClassName{"separator", R"(\p{Z})"},
    ClassName{"other", R"(\p{C})"},
    ClassName{"lc", R"(\p{Lu}\p{Ll}\p{Lt})"},
};

template <size_t N>
std::optional<std::string_view> find_class(const std::array<ClassName, N>& classes, std::string_view name) {
  for (const ClassName& entry : classes) {
    if (entry.name == name) return entry.members;
  }
  return std::nullopt;
}

}  // namespace quire::tokenize::regex_names
