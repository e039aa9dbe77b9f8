#include "tokenize/unicode.h"

#include <algorithm>
#include <array>
#include <new>
#include <stdexcept>
#include <utf8proc.h>
#include <vector>

#include "base/utf8.h"
#include "tokenize/regex.h"

namespace quire::tokenize {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

struct NewRange {
  char32_t first;
  char32_t last;
  uint8_t since;  // 9: Unicode 9, 10: a later one
};

// The marks, punctuation, format characters and characters with decompositions that Unicode 9 to 14 added, as
// ranges that hold no older such character. Made with Perl's \p{In=8.0} and \p{In=9.0}.
constexpr std::array kNewRanges = {
    NewRange{0x61D, 0x61D, 10},     NewRange{0x7FD, 0x7FD, 10},     NewRange{0x890, 0x89F, 10},
    NewRange{0x8CA, 0x8D3, 10},     NewRange{0x8D4, 0x8E2, 9},      NewRange{0x9FD, 0x9FE, 10},
    NewRange{0xA76, 0xA76, 10},     NewRange{0xAFA, 0xAFF, 10},     NewRange{0xB55, 0xB55, 10},
    NewRange{0xC04, 0xC04, 10},     NewRange{0xC3C, 0xC3C, 10},     NewRange{0xC77, 0xC77, 10},
    NewRange{0xC84, 0xC84, 10},     NewRange{0xD00, 0xD00, 10},     NewRange{0xD3B, 0xD3C, 10},
    NewRange{0xD81, 0xD81, 10},     NewRange{0xEBA, 0xEBA, 10},     NewRange{0x1715, 0x1715, 10},
    NewRange{0x180F, 0x180F, 10},   NewRange{0x1ABF, 0x1ACE, 10},   NewRange{0x1B7D, 0x1B7E, 10},
    NewRange{0x1CF7, 0x1CF7, 10},   NewRange{0x1DF6, 0x1DFA, 10},   NewRange{0x1DFB, 0x1DFB, 9},
    NewRange{0x2E43, 0x2E44, 9},    NewRange{0x2E45, 0x2E5D, 10},   NewRange{0x32FF, 0x32FF, 10},
    NewRange{0xA7F2, 0xA7F4, 10},   NewRange{0xA82C, 0xA82C, 10},   NewRange{0xA8C5, 0xA8C5, 9},
    NewRange{0xA8FF, 0xA8FF, 10},   NewRange{0xAB69, 0xAB69, 10},   NewRange{0x10781, 0x107BA, 10},
    NewRange{0x10D24, 0x10D27, 10}, NewRange{0x10EAB, 0x10F89, 10}, NewRange{0x11070, 0x11074, 10},
    NewRange{0x110C2, 0x110CD, 10}, NewRange{0x11145, 0x11146, 10}, NewRange{0x111CE, 0x111CF, 10},
    NewRange{0x1123E, 0x1123E, 9},  NewRange{0x1133B, 0x1133B, 10}, NewRange{0x11435, 0x1144F, 9},
    NewRange{0x1145A, 0x1145A, 10}, NewRange{0x1145B, 0x1145D, 9},  NewRange{0x1145E, 0x1145E, 10},
    NewRange{0x11660, 0x1166C, 9},  NewRange{0x116B9, 0x116B9, 10}, NewRange{0x1182C, 0x1183B, 10},
    NewRange{0x11930, 0x11AA2, 10}, NewRange{0x11C2F, 0x11CB6, 9},  NewRange{0x11D31, 0x11FFF, 10},
    NewRange{0x12FF1, 0x12FF2, 10}, NewRange{0x13430, 0x13438, 10}, NewRange{0x16E97, 0x16E9A, 10},
    NewRange{0x16F4F, 0x16F4F, 10}, NewRange{0x16F7F, 0x16F87, 10}, NewRange{0x16FE2, 0x16FF1, 10},
    NewRange{0x1CF00, 0x1CF46, 10}, NewRange{0x1E000, 0x1E02A, 9},  NewRange{0x1E130, 0x1E2EF, 10},
    NewRange{0x1E944, 0x1E94A, 9},  NewRange{0x1E95E, 0x1E95F, 9},  NewRange{0x1F16C, 0x1F16C, 10},
    NewRange{0x1F23B, 0x1F23B, 9},  NewRange{0x1FBF0, 0x1FBF9, 10},
};

/// The version of Unicode that brought one of those characters; 0 for all others.
int new_since(char32_t code) {
  if (code < kNewRanges[0].first) return 0;
  const auto* range = std::partition_point(kNewRanges.begin(), kNewRanges.end(),
                                           [&](const NewRange& r) { return r.last < code; });
  return range != kNewRanges.end() && range->first <= code ? range->since : 0;
}

bool has_category(char32_t code, utf8proc_category_t first, utf8proc_category_t last) {
  const auto c = category(code);
  return c >= first && c <= last;
}

}  // namespace

bool is_numeric(char32_t code) {
  const auto c = category(code);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_mark(char32_t code) {
  if (code < 0x300) return false;
  if (code == 0x1CF2 || code == 0x1CF3) return true;  // Lo since Unicode 12
  if (code == 0x111C9) return false;                  // since Unicode 11
  return has_category(code, UTF8PROC_CATEGORY_MN, UTF8PROC_CATEGORY_ME) && new_since(code) <= 9;
}

bool is_nonspacing_mark(char32_t code) {
  if (code < 0x300) return false;
  if (code == 0x1734) return true;  // Mc since Unicode 14
  // They became marks of this kind after Unicode 8.
  if (code == 0x1885 || code == 0x1886 || code == 0xA9BD || code == 0x111C9) return false;
  return category(code) == UTF8PROC_CATEGORY_MN && new_since(code) == 0;
}

bool is_control(char32_t code) {
  if (code < 0x80) return code < 0x20 || code == 0x7F;
  const auto c = category(code);
  return (c == UTF8PROC_CATEGORY_CC || c == UTF8PROC_CATEGORY_CF || c == UTF8PROC_CATEGORY_CO) &&
         new_since(code) == 0;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= '!' && code <= '/') || (code >= ':' && code <= '@') || (code >= '[' && code <= '`') ||
           (code >= '{' && code <= '~');
  }
  if (code == 0x166D || code == 0x111C9) return true;  // So and Mn since Unicode 12 and 11
  return has_category(code, UTF8PROC_CATEGORY_PC, UTF8PROC_CATEGORY_PO) && new_since(code) == 0;
}

bool is_word(char32_t code) {
  if (code < 0x80) {
    return (code >= 'a' && code <= 'z') || (code >= 'A' && code <= 'Z') || (code >= '0' && code <= '9') ||
           code == '_';
  }
  // utf8proc does not know the Alphabetic property.
  static const Regex kWord = *Regex::compile("[\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\p{Join_Control}]");
  std::string text;
  append_utf8(text, code);
  std::vector<Span> found;
  kWord.find_all(text, found);
  return !found.empty();
}

size_t grapheme_end(std::string_view valid, size_t begin) {
  utf8proc_int32_t state = 0;
  Utf8Char last = utf8_at(valid, begin);
  size_t end = begin + last.size;
  while (end < valid.size()) {
    const Utf8Char next = utf8_at(valid, end);
    if (last.code < 0x80 && next.code < 0x80) {
      if (last.code == '\r' && next.code == '\n') ++end;
      break;
    }
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last.code),
                                         static_cast<utf8proc_int32_t>(next.code), &state)) {
      break;
    }
    last = next;
    end += next.size;
  }
  return end;
}

std::string to_lowercase(std::string_view valid) {
  std::string out;
  out.reserve(valid.size());
  for (size_t pos = 0; pos < valid.size();) {
    const Utf8Char c = utf8_at(valid, pos);
    pos += c.size;
    if (c.code < 0x80) {
      out += static_cast<char>(c.code >= 'A' && c.code <= 'Z' ? c.code + ('a' - 'A') : c.code);
    } else if (c.code == 0x130) {
      out += "i\xCC\x87";
    } else {
      append_utf8(out, static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.code))));
    }
  }
  return out;
}

namespace {

/// Canonical decomposition and ordering, and composition, of a stretch of text. Characters that the reference
/// does not know are left as they are.
class StretchNormalizer {
 public:
  explicit StretchNormalizer(NormalizationForm form)
      : compose_(form == NormalizationForm::kNfc || form == NormalizationForm::kNfkc),
        options_(static_cast<utf8proc_option_t>(
            UTF8PROC_STABLE | UTF8PROC_DECOMPOSE |
            (form == NormalizationForm::kNfkc || form == NormalizationForm::kNfkd ? UTF8PROC_COMPAT : 0))) {}

  void append(std::string& out, std::string_view valid) {
    codes_.clear();
    for (size_t pos = 0; pos < valid.size();) {
      const Utf8Char c = utf8_at(valid, pos);
      pos += c.size;
      if (new_since(c.code) > 9) {
        flush(out);
        append_utf8(out, c.code);
      } else {
        decompose(c.code);
      }
    }
    flush(out);
  }

 private:
  void decompose(char32_t code) {
    // The longest decomposition of one character has 18.
    std::array<utf8proc_int32_t, 32> parts{};
    int boundary = 0;
    const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(),
                                               parts.size(), options_, &boundary);
    if (count < 0 || static_cast<size_t>(count) > parts.size()) {
      codes_.push_back(static_cast<utf8proc_int32_t>(code));
    } else {
      codes_.insert(codes_.end(), parts.begin(), parts.begin() + count);
    }
  }

  void flush(std::string& out) {
    order_marks();
    if (compose_ && codes_.size() > 1) {
      const auto composed =
          utf8proc_normalize_utf32(codes_.data(), static_cast<utf8proc_ssize_t>(codes_.size()),
                                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
      if (composed >= 0) codes_.resize(static_cast<size_t>(composed));
    }
    for (const auto code : codes_) append_utf8(out, static_cast<char32_t>(code));
    codes_.clear();
  }

  /// Canonical ordering (UAX 15, D108). utf8proc's own sorts by insertion, in time quadratic in the length of
  /// a run of marks, which a hostile text chooses.
  void order_marks() {
    const auto combining_class = [](utf8proc_int32_t code) {
      return utf8proc_get_property(code)->combining_class;
    };
    auto run = codes_.begin();
    while (run != codes_.end()) {
      if (combining_class(*run) == 0) {
        ++run;
        continue;
      }
      const auto end = std::find_if(run, codes_.end(), [&](auto code) { return combining_class(code) == 0; });
      std::stable_sort(run, end, [&](auto a, auto b) { return combining_class(a) < combining_class(b); });
      run = end;
    }
  }

  bool compose_;
  utf8proc_option_t options_;
  std::vector<utf8proc_int32_t> codes_;
};

/// Bytes at the head that are below U+0080 or, for NFC, U+0300: they are in every form, and nothing before
/// them changes what follows.
size_t unchanged_prefix(std::string_view text, bool nfc) {
  size_t i = 0;
  while (i < text.size()) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte >= 0x80 && (!nfc || byte >= 0xCC)) break;
    i += byte < 0x80 ? 1 : 2;
  }
  return i;
}

}  // namespace

std::string to_normalization_form(std::string_view valid, NormalizationForm form) {
  std::string out;
  out.reserve(valid.size());
  StretchNormalizer normalizer(form);
  const bool nfc = form == NormalizationForm::kNfc;
  while (!valid.empty()) {
    size_t same = unchanged_prefix(valid, nfc);
    size_t end = valid.size();
    if (same < end) {
      // The last of them may take what follows; the stretch ends before the next ASCII character, which takes
      // nothing from before it.
      if (same > 0) same -= utf8_before(valid, same).size;
      end = same + utf8_at(valid, same).size;
      while (end < valid.size() && static_cast<unsigned char>(valid[end]) >= 0x80) ++end;
    }
    out.append(valid.substr(0, same));
    if (same < end) normalizer.append(out, valid.substr(same, end - same));
    valid.remove_prefix(end);
  }
  return out;
}

}  // namespace quire::tokenize
