#include "jinja/text.h"

#include <algorithm>
#include <cstring>
#include <utf8proc.h>

#include "base/utf8.h"

namespace quire::jinja {
namespace {

utf8proc_category_t category(char32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

char32_t to_upper(char32_t code) {
  return static_cast<char32_t>(utf8proc_toupper(static_cast<utf8proc_int32_t>(code)));
}
char32_t to_lower(char32_t code) {
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}
char32_t to_title(char32_t code) {
  return static_cast<char32_t>(utf8proc_totitle(static_cast<utf8proc_int32_t>(code)));
}

bool is_cased(char32_t code) {
  const utf8proc_category_t of = category(code);
  return of == UTF8PROC_CATEGORY_LU || of == UTF8PROC_CATEGORY_LL || of == UTF8PROC_CATEGORY_LT ||
         to_lower(code) != code || to_upper(code) != code;
}

bool is_case_ignorable(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return code == '\'' || code == '.' || code == ':' || code == 0xB7 || code == 0x2019;
  }
}

/// Calls visit(code, position, size) for each character until it returns false; whether it never did.
template <class Visit>
bool each_char(std::string_view text, Visit&& visit) {
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    if (!visit(c.code, i, c.size)) return false;
    i += c.size;
  }
  return true;
}

template <class Test>
bool all_chars(std::string_view text, Test&& test) {
  return !text.empty() && each_char(text, [&](char32_t code, size_t, size_t) { return test(code); });
}

void append_upper(std::string& out, char32_t code) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'a' && code <= 'z' ? code - 32 : code);
  } else if (const SpecialCase* special = special_case(code)) {
    out += special->upper;
  } else {
    append_utf8(out, to_upper(code));
  }
}

void append_title(std::string& out, char32_t code) {
  if (const SpecialCase* special = special_case(code)) {
    out += special->title;
  } else {
    append_utf8(out, to_title(code));
  }
}

/// Unicode's Final_Sigma condition at `pos`, a character of `size` bytes.
bool is_final_sigma(std::string_view text, size_t pos, size_t size) {
  bool before = false;
  for (size_t i = pos; i > 0;) {
    const Utf8Char c = utf8_before(text, i);
    i -= c.size;
    if (is_case_ignorable(c.code)) continue;
    before = is_cased(c.code);
    break;
  }
  if (!before) return false;
  for (size_t i = pos + size; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    i += c.size;
    if (is_case_ignorable(c.code)) continue;
    return !is_cased(c.code);
  }
  return true;
}

void append_lower(std::string& out, std::string_view text, char32_t code, size_t pos, size_t size) {
  if (code < 0x80) {
    out += static_cast<char>(code >= 'A' && code <= 'Z' ? code + 32 : code);
  } else if (code == 0x130) {
    out += "i\xCC\x87";
  } else if (code == 0x3A3) {
    append_utf8(out, is_final_sigma(text, pos, size) ? 0x3C2 : 0x3C3);
  } else {
    append_utf8(out, to_lower(code));
  }
}

}  // namespace

size_t byte_of(std::string_view text, size_t index) {
  size_t i = 0;
  for (; i < text.size(); ++i) {
    if (continues_utf8(text[i])) continue;
    if (index == 0) break;
    --index;
  }
  return i;
}

std::string_view substring(std::string_view text, size_t begin, size_t end) {
  if (begin >= end) return {};
  if (is_ascii(text)) return text.substr(std::min(begin, text.size()), end - begin);
  const size_t first = byte_of(text, begin);
  return text.substr(first, byte_of(text.substr(first), end - begin));
}

std::vector<std::string_view> split_chars(std::string_view text) {
  std::vector<std::string_view> out;
  each_char(text, [&](char32_t, size_t i, size_t size) {
    out.push_back(text.substr(i, size));
    return true;
  });
  return out;
}

bool is_python_space(char32_t c) { return is_white_space(c) || (c >= 0x1C && c <= 0x1F); }

bool is_printable(char32_t code) {
  if (code < 0x80) return code >= 0x20 && code < 0x7F;
  switch (category(code)) {
    case UTF8PROC_CATEGORY_CC:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_CS:
    case UTF8PROC_CATEGORY_CO:
    case UTF8PROC_CATEGORY_CN:
    case UTF8PROC_CATEGORY_ZL:
    case UTF8PROC_CATEGORY_ZP:
    case UTF8PROC_CATEGORY_ZS:
      return false;
    default:
      return true;
  }
}

std::string_view strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const auto goes = [&](std::string_view bytes, char32_t code) {
    return chars == nullptr ? is_python_space(code) : chars->find(bytes) != std::string_view::npos;
  };
  while (left && !text.empty()) {
    const Utf8Char c = utf8_at(text, 0);
    if (!goes(text.substr(0, c.size), c.code)) break;
    text.remove_prefix(c.size);
  }
  while (right && !text.empty()) {
    const Utf8Char c = utf8_before(text, text.size());
    if (!goes(text.substr(text.size() - c.size), c.code)) break;
    text.remove_suffix(c.size);
  }
  return text;
}

std::string upper(std::string_view text) {
  std::string out;
  each_char(text, [&](char32_t code, size_t, size_t) { return append_upper(out, code), true; });
  return out;
}

std::string lower(std::string_view text) {
  std::string out;
  each_char(text, [&](char32_t code, size_t i, size_t size) {
    append_lower(out, text, code, i, size);
    return true;
  });
  return out;
}

std::string capitalize(std::string_view text) {
  std::string out;
  each_char(text, [&](char32_t code, size_t i, size_t size) {
    if (i == 0) {
      append_title(out, code);
    } else {
      append_lower(out, text, code, i, size);
    }
    return true;
  });
  return out;
}

std::string title(std::string_view text) {
  std::string out;
  bool inside = false;
  each_char(text, [&](char32_t code, size_t i, size_t size) {
    if (inside) {
      append_lower(out, text, code, i, size);
    } else {
      append_title(out, code);
    }
    inside = is_cased(code);
    return true;
  });
  return out;
}

bool is_lower(std::string_view text) {
  bool cased = false;
  const bool none_upper = each_char(text, [&](char32_t code, size_t, size_t) {
    const utf8proc_category_t of = category(code);
    if (of == UTF8PROC_CATEGORY_LU || of == UTF8PROC_CATEGORY_LT) return false;
    cased = cased || of == UTF8PROC_CATEGORY_LL;
    return true;
  });
  return none_upper && cased;
}

bool is_upper(std::string_view text) {
  bool cased = false;
  const bool none_lower = each_char(text, [&](char32_t code, size_t, size_t) {
    const utf8proc_category_t of = category(code);
    if (of == UTF8PROC_CATEGORY_LL || of == UTF8PROC_CATEGORY_LT) return false;
    cased = cased || of == UTF8PROC_CATEGORY_LU;
    return true;
  });
  return none_lower && cased;
}

bool is_space(std::string_view text) { return all_chars(text, is_python_space); }

bool is_alpha(std::string_view text) {
  return all_chars(text, [](char32_t code) {
    const utf8proc_category_t of = category(code);
    return of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO;
  });
}

bool is_alnum(std::string_view text) {
  return all_chars(text, [](char32_t code) {
    const utf8proc_category_t of = category(code);
    return (of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO) ||
           (of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO);
  });
}

bool is_decimal(std::string_view text) {
  return all_chars(text, [](char32_t code) { return category(code) == UTF8PROC_CATEGORY_ND; });
}

bool is_digit(std::string_view text) {
  // Beside the decimals: superscripts, subscripts and circled digits.
  return all_chars(text, [](char32_t c) {
    return category(c) == UTF8PROC_CATEGORY_ND || c == 0xB2 || c == 0xB3 || c == 0xB9 || c == 0x2070 ||
           (c >= 0x2074 && c <= 0x2079) || (c >= 0x2080 && c <= 0x2089) || (c >= 0x2460 && c <= 0x2468);
  });
}

bool is_numeric_text(std::string_view text) {
  return all_chars(text, [](char32_t code) {
    const utf8proc_category_t of = category(code);
    return of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO;
  });
}

int decimal_value(char32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9' ? static_cast<int>(code - '0') : -1;
  if (category(code) != UTF8PROC_CATEGORY_ND) return -1;
  // The digits of a script stand together in order, and no run of them begins behind another's but as a
  // whole.
  char32_t first = code;
  while (category(first - 1) == UTF8PROC_CATEGORY_ND) --first;
  return static_cast<int>((code - first) % 10);
}

bool is_word_char(char32_t code) {
  if (code == '_') return true;
  const utf8proc_category_t of = category(code);
  return (of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO) ||
         (of >= UTF8PROC_CATEGORY_ND && of <= UTF8PROC_CATEGORY_NO);
}

bool is_identifier(std::string_view text) {
  if (text.empty()) return false;
  return each_char(text, [&](char32_t code, size_t i, size_t) {
    if (code == '_') return true;
    const utf8proc_category_t of = category(code);
    const bool starts =
        (of >= UTF8PROC_CATEGORY_LU && of <= UTF8PROC_CATEGORY_LO) || of == UTF8PROC_CATEGORY_NL;
    if (i == 0) return starts;
    return starts || of == UTF8PROC_CATEGORY_ND || of == UTF8PROC_CATEGORY_MN || of == UTF8PROC_CATEGORY_MC ||
           of == UTF8PROC_CATEGORY_PC;
  });
}

void split_lines(std::string_view text, bool keep_ends, const std::function<void(std::string_view)>& visit) {
  size_t begin = 0;
  for (size_t i = 0; i < text.size();) {
    const Utf8Char c = utf8_at(text, i);
    const bool breaks = (c.code >= 10 && c.code <= 13) || (c.code >= 0x1C && c.code <= 0x1E) ||
                        c.code == 0x85 || c.code == 0x2028 || c.code == 0x2029;
    if (!breaks) {
      i += c.size;
      continue;
    }
    size_t end = i + c.size;
    if (c.code == '\r' && end < text.size() && text[end] == '\n') ++end;
    visit(text.substr(begin, (keep_ends ? end : i) - begin));
    begin = i = end;
  }
  if (begin < text.size()) visit(text.substr(begin));
}

size_t find_text(std::string_view text, std::string_view needle, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (needle.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  const void* found = memmem(text.data() + from, text.size() - from, needle.data(), needle.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

}  // namespace quire::jinja
