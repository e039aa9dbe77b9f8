#include "text/unicode.h"

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <utf8proc.h>
#include <vector>

#include "text/regex.h"
#include "text/utf8.h"

namespace quire {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

/// Canonical ordering (UAX 15, D108). utf8proc's own sorts by insertion, in time quadratic in the length of a
/// run of marks, which a hostile text chooses.
void order_marks(std::vector<utf8proc_int32_t>& codes) {
  const auto combining_class = [](utf8proc_int32_t code) {
    return utf8proc_get_property(code)->combining_class;
  };
  auto run = codes.begin();
  while (run != codes.end()) {
    if (combining_class(*run) == 0) {
      ++run;
      continue;
    }
    const auto end = std::find_if(run, codes.end(), [&](auto code) { return combining_class(code) == 0; });
    std::stable_sort(run, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
    run = end;
  }
}

}  // namespace

bool is_white_space(char32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xA0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200A) ||
         code == 0x2028 || code == 0x2029 || code == 0x202F || code == 0x205F || code == 0x3000;
}

bool is_numeric(char32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_MN || c == UTF8PROC_CATEGORY_MC || c == UTF8PROC_CATEGORY_ME;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  }
  const auto c = category(code);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t code) {
  if (code < 0x80) {
    return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9') ||
           code == '_';
  }
  // utf8proc does not know the Alphabetic property.
  static const Regex word = *Regex::compile("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]");
  std::string text;
  append_utf8(text, code);
  std::vector<Span> found;
  word.find_all(text, found);
  return !found.empty();
}

std::string to_lowercase(std::string_view valid) {
  std::string out;
  out.reserve(valid.size());
  for (size_t pos = 0; pos < valid.size();) {
    const Utf8Char c = utf8_at(valid, pos);
    pos += c.size;
    if (c.code == 0x130) {
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
  }
  return out;
}

std::string to_normalization_form(std::string_view valid, NormalizationForm form) {
  if (is_ascii(valid)) return std::string(valid);
  const bool compat = form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd;
  const bool compose = form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc;
  const auto decompose_options =
      static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0));
  std::vector<utf8proc_int32_t> codes;
  codes.reserve(valid.size());
  // The longest decomposition of one character has 18.
  std::array<utf8proc_int32_t, 32> parts{};
  for (size_t pos = 0; pos < valid.size();) {
    const Utf8Char c = utf8_at(valid, pos);
    pos += c.size;
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c.code), parts.data(),
                                               parts.size(), decompose_options, &boundary);
    if (count < 0 || static_cast<size_t>(count) > parts.size()) {
      codes.push_back(static_cast<utf8proc_int32_t>(c.code));
    } else {
      codes.insert(codes.end(), parts.begin(), parts.begin() + count);
    }
  }
  order_marks(codes);
  if (compose && !codes.empty()) {
    const auto composed =
        utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()),
                                 static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    if (composed >= 0) codes.resize(static_cast<size_t>(composed));
  }
  std::string out;
  out.reserve(valid.size());
  for (const auto code : codes) append_utf8(out, static_cast<char32_t>(code));
  return out;
}

}  // namespace quire
