#define PCRE2_CODE_UNIT_WIDTH 8
#include "tokenize/regex_char_set.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <pcre2.h>
#include <stdexcept>

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::tokenize {
namespace {

constexpr char32_t kLast = 0x10FFFF;
constexpr char32_t kFirstSurrogate = 0xD800;
constexpr char32_t kLastSurrogate = 0xDFFF;

/// All characters, one after the other.
const std::string& all_characters() {
  static const std::string kText = [] {
    std::string out;
    for (char32_t code = 0; code <= kLast; ++code) {
      if (code < kFirstSurrogate || code > kLastSurrogate) append_utf8(out, code);
    }
    return out;
  }();
  return kText;
}

struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};

}  // namespace

void CharSet::add(char32_t first, char32_t last) {
  if (!ranges_.empty() && ranges_.back().last + 1 == first) {
    ranges_.back().last = last;
  } else {
    ranges_.push_back({first, last});
  }
}

CharSet CharSet::of_class(std::string_view members) {
  const std::string pattern = fmt::format("[{}]+", members);
  int failed = 0;
  PCRE2_SIZE offset = 0;
  const std::unique_ptr<pcre2_code, FreeCode> code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()),
                                                                 pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                                                 &failed, &offset, nullptr));
  if (!code) {
    std::array<PCRE2_UCHAR, 256> text{};
    pcre2_get_error_message(failed, text.data(), text.size());
    throw std::invalid_argument(reinterpret_cast<const char*>(text.data()));
  }
  pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  const std::unique_ptr<pcre2_match_data, FreeData> data(pcre2_match_data_create(1, nullptr));
  if (!data) throw std::bad_alloc();
  const std::string& text = all_characters();
  const PCRE2_SIZE* bounds = pcre2_get_ovector_pointer(data.get());
  CharSet out;
  size_t from = 0;
  while (from < text.size() && pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(),
                                           from, PCRE2_NO_UTF_CHECK, data.get(), nullptr) > 0) {
    const char32_t first = utf8_at(text, bounds[0]).code;
    const char32_t last = utf8_before(text, bounds[1]).code;
    out.add_valid(first, last);
    from = bounds[1];
  }
  return out;
}

void CharSet::add_valid(char32_t first, char32_t last) {
  if (first > last) return;
  if (first < kFirstSurrogate) add(first, std::min<char32_t>(last, kFirstSurrogate - 1));
  if (last > kLastSurrogate) add(std::max<char32_t>(first, kLastSurrogate + 1), last);
}

CharSet CharSet::of_range(char32_t first, char32_t last) {
  CharSet out;
  out.add_valid(first, last);
  return out;
}

bool CharSet::contains(char32_t code) const {
  return std::ranges::any_of(ranges_,
                             [&](const Range& range) { return range.first <= code && code <= range.last; });
}

CharSet CharSet::complement() const {
  CharSet out;
  char32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.first > next) out.add_valid(next, range.first - 1);
    next = range.last + 1;
  }
  if (next <= kLast) out.add_valid(next, kLast);
  return out;
}

CharSet CharSet::united(const CharSet& other) const {
  return complement().intersected(other.complement()).complement();
}

CharSet CharSet::intersected(const CharSet& other) const {
  CharSet out;
  auto a = ranges_.begin();
  auto b = other.ranges_.begin();
  while (a != ranges_.end() && b != other.ranges_.end()) {
    const char32_t first = std::max(a->first, b->first);
    const char32_t last = std::min(a->last, b->last);
    if (first <= last) out.add(first, last);
    (a->last < b->last ? a : b) += 1;
  }
  return out;
}

bool CharSet::includes(const CharSet& other) const { return other.intersected(complement()).ranges_.empty(); }

std::string CharSet::members() const {
  std::string out;
  for (const Range& range : ranges_) {
    out += fmt::format("\\x{{{:x}}}", static_cast<uint32_t>(range.first));
    if (range.last > range.first) out += fmt::format("-\\x{{{:x}}}", static_cast<uint32_t>(range.last));
  }
  return out;
}

}  // namespace quire::tokenize
