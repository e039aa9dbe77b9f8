#include "tokenize/sentencepiece_normalizer.h"

#include <algorithm>

#include "base/error.h"
#include "base/utf8.h"

namespace quire::tokenize {
namespace {

constexpr std::string_view kSpaceMark = "\xE2\x96\x81";  // U+2581

}  // namespace

SentencePieceNormalizer::SentencePieceNormalizer(const SentencePieceFile& file, std::optional<CharsMap> map,
                                                 TextFinder user_defined, Prefix prefix)
    : map_(std::move(map)),
      user_defined_(std::move(user_defined)),
      prefix_(file.dummy_prefix ? prefix : Prefix::kNever),
      as_suffix_(file.whitespace_as_suffix),
      remove_extra_(file.remove_extra_whitespaces),
      escape_(file.escape_whitespaces) {}

SentencePieceNormalizer::Step SentencePieceNormalizer::step(std::string_view text, size_t pos) const {
  if (!user_defined_.empty()) {
    if (const auto found = user_defined_.find_at(text, pos)) {
      const size_t size = found->span.end - pos;
      return {text.substr(pos, size), size};
    }
  }
  if (map_) {
    if (const auto match = map_->longest(text.substr(pos))) return {match->replacement, match->size};
  }
  const size_t size = utf8_at(text, pos).size;
  return {text.substr(pos, size), size};
}

size_t SentencePieceNormalizer::plain_run(std::string_view text, size_t pos) const {
  if (!user_defined_.empty()) return 0;
  size_t end = pos;
  // A rule may want the character behind too: the last of them is left to step().
  while (end + 1 < text.size()) {
    const char c = text[end];
    const char next = text[end + 1];
    if (static_cast<unsigned char>(c) >= 0x80 || static_cast<unsigned char>(next) >= 0x80 || c == ' ') break;
    if (map_ && map_->concerns(c, next)) break;
    ++end;
  }
  return end - pos;
}

void SentencePieceNormalizer::apply(NormalizedText& text) const {
  const std::string_view in = text.text;
  size_t pos = 0;
  if (remove_extra_) {
    while (pos < in.size()) {
      const Step next = step(in, pos);
      if (next.text != " ") break;
      pos += next.size;
    }
  }
  std::string out;
  if (pos == in.size()) {
    text.text.clear();
    return;
  }
  out.reserve(in.size() + in.size() / 2 + 8);
  const std::string_view space = escape_ ? kSpaceMark : std::string_view(" ");
  const bool wants_mark = prefix_ == Prefix::kAlways || (prefix_ == Prefix::kFirst && text.from_start);
  if (wants_mark && !as_suffix_) out += space;
  bool after_space = remove_extra_;
  while (pos < in.size()) {
    if (const size_t run = plain_run(in, pos); run > 0) {
      out.append(in.substr(pos, run));
      pos += run;
      after_space = false;
    }
    Step next = step(in, pos);
    pos += next.size;
    const size_t before = out.size();
    while (after_space && next.text.starts_with(' ')) next.text.remove_prefix(1);
    if (next.text.empty()) continue;
    for (const char c : next.text) {
      if (c == ' ') {
        out += space;
      } else {
        out += c;
      }
    }
    after_space = remove_extra_ && next.text.ends_with(' ');
    const size_t added = out.size() - before;
    if (added > next.size) text.growth.spend("normalization rules", added - next.size);
  }
  while (remove_extra_ && out.ends_with(space)) out.resize(out.size() - space.size());
  if (wants_mark && as_suffix_) out += space;
  text.text = std::move(out);
}

}  // namespace quire::tokenize
