#include "tokenize/normalizer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenize/base64.h"
#include "tokenize/byte_level.h"
#include "tokenize/charsmap.h"
#include "tokenize/json_steps.h"
#include "tokenize/split.h"
#include "tokenize/unicode.h"

namespace quire::tokenize {
namespace {

constexpr char32_t kDropped = 0xFFFFFFFF;

/// Replaces each character by what `map` makes of it.
template <class Map>
void map_characters(NormalizedText& text, const Map& map) {
  const std::string& in = text.text;
  std::string out;
  out.reserve(in.size());
  for (size_t pos = 0; pos < in.size();) {
    const Utf8Char c = utf8_at(in, pos);
    const char32_t mapped = map(c.code);
    if (mapped == c.code) {
      out.append(in, pos, c.size);
    } else if (mapped != kDropped) {
      append_utf8(out, mapped);
    } else if (pos == 0) {
      text.from_start = false;
    }
    pos += c.size;
  }
  text.text = std::move(out);
}

class SequenceNormalizer : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  void apply(NormalizedText& text) const override {
    for (const auto& step : steps_) step->apply(text);
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix) : prefix_(std::move(prefix)) {}
  void apply(NormalizedText& text) const override {
    if (text.text.empty()) return;
    text.growth.spend("normalizer 'Prepend'", prefix_.size());
    text.text.insert(0, prefix_);
  }

 private:
  std::string prefix_;
};

class ReplaceNormalizer : public Normalizer {
 public:
  ReplaceNormalizer(Pattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}

  void apply(NormalizedText& text) const override {
    std::vector<Span> matches;
    pattern_.find_all(text.text, matches);
    if (matches.empty()) return;
    if (matches[0].begin == 0 && matches[0].end > 0) {
      // The replacement of several characters counts as coming from the last of them.
      const bool one_char = utf8_at(text.text, 0).size == matches[0].end;
      text.from_start = text.from_start && one_char && !content_.empty();
    }
    size_t removed = 0;
    for (const Span& match : matches) removed += match.end - match.begin;
    const size_t added = matches.size() * content_.size();
    if (added > removed) text.growth.spend("normalizer 'Replace'", added - removed);
    std::string out;
    out.reserve(text.text.size() - removed + added);
    size_t done = 0;
    for (const Span& match : matches) {
      out.append(text.text, done, match.begin - done);
      out += content_;
      done = match.end;
    }
    out.append(text.text, done);
    text.text = std::move(out);
  }

 private:
  Pattern pattern_;
  std::string content_;
};

class UnicodeNormalizer : public Normalizer {
 public:
  explicit UnicodeNormalizer(NormalizationForm form) : form_(form) {}
  void apply(NormalizedText& text) const override { text.text = to_normalization_form(text.text, form_); }

 private:
  NormalizationForm form_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override { text.text = to_lowercase(text.text); }
};

class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text) const override {
    std::string& s = text.text;
    size_t end = s.size();
    while (right_ && end > 0) {
      const Utf8Char last = utf8_before(s, end);
      if (!is_white_space(last.code)) break;
      end -= last.size;
    }
    size_t begin = 0;
    while (left_ && begin < end) {
      const Utf8Char first = utf8_at(s, begin);
      if (!is_white_space(first.code)) break;
      begin += first.size;
    }
    if (begin > 0) text.from_start = false;
    s = s.substr(begin, end - begin);
  }

 private:
  bool left_;
  bool right_;
};

class StripAccentsNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    map_characters(text, [](char32_t code) { return is_mark(code) ? kDropped : code; });
  }
};

/// The cleaning of SentencePiece's nmt rules.
class NmtNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    map_characters(text, [](char32_t code) -> char32_t {
      if ((code >= 0x1 && code <= 0x8) || code == 0xB || (code >= 0xE && code <= 0x1F) || code == 0x7F ||
          code == 0x8F || code == 0x9F) {
        return kDropped;
      }
      const bool space = code == 0x9 || code == 0xA || code == 0xC || code == 0xD || code == 0x1680 ||
                         (code >= 0x200B && code <= 0x200F) || code == 0x2028 || code == 0x2029 ||
                         code == 0x2581 || code == 0xFEFF || code == 0xFFFD;
      return space ? U' ' : code;
    });
  }
};

/// SentencePiece's compiled rules, as the reference library reads them: a grapheme cluster of less than 6
/// bytes that starts with a rule is replaced as a whole by the shortest such rule, else each character
/// separately.
class PrecompiledNormalizer : public Normalizer {
 public:
  explicit PrecompiledNormalizer(CharsMap map) : map_(std::move(map)) {}

  void apply(NormalizedText& text) const override {
    const std::string_view in = text.text;
    std::string out;
    out.reserve(in.size());
    size_t begin = 0;
    while (begin < in.size()) {
      const size_t plain = plain_run(in, begin);
      out.append(in.substr(begin, plain));
      begin += plain;
      const size_t end = grapheme_end(in, begin);
      const size_t before = out.size();
      append(out, in.substr(begin, end - begin));
      const size_t added = out.size() - before;
      if (added > end - begin) text.growth.spend("normalizer 'Precompiled'", added - (end - begin));
      begin = end;
    }
    text.text = std::move(out);
  }

 private:
  /// Bytes at `pos` that no rule concerns, each a cluster of its own; never the last one of the text.
  size_t plain_run(std::string_view text, size_t pos) const {
    size_t end = pos;
    while (end + 1 < text.size()) {
      const char c = text[end];
      const char next = text[end + 1];
      const bool ascii = static_cast<unsigned char>(c) < 0x80 && static_cast<unsigned char>(next) < 0x80;
      if (!ascii || c == '\r' || map_.concerns(c, next)) break;
      ++end;
    }
    return end - pos;
  }

  void append(std::string& out, std::string_view grapheme) const {
    if (grapheme.size() < 6) {
      if (const auto match = map_.shortest(grapheme)) {
        out += match->replacement;
        return;
      }
    }
    for (size_t pos = 0; pos < grapheme.size();) {
      const std::string_view character = grapheme.substr(pos, utf8_at(grapheme, pos).size);
      const auto match = map_.shortest(character);
      out += match ? match->replacement : character;
      pos += character.size();
    }
  }

  CharsMap map_;
};

/// BERT's normalizer: control characters are dropped, white space becomes spaces, Chinese characters are
/// separated, accents are removed, and text is lowercased; each step is optional.
class BertNormalizer : public Normalizer {
 public:
  BertNormalizer(bool clean, bool chinese, bool accents, bool lowercase)
      : clean_(clean), chinese_(chinese), accents_(accents), lowercase_(lowercase) {}

  void apply(NormalizedText& text) const override {
    if (clean_) {
      map_characters(text, [](char32_t code) -> char32_t {
        if (code == '\t' || code == '\n' || code == '\r') return U' ';
        if (code == 0 || code == 0xFFFD || is_control(code)) return kDropped;
        return is_white_space(code) ? U' ' : code;
      });
    }
    if (chinese_) {
      const size_t before = text.text.size();
      separate_chinese(text.text);
      text.growth.spend("normalizer 'BertNormalizer'", text.text.size() - before);
    }
    if (accents_) {
      text.text = to_normalization_form(text.text, NormalizationForm::kNfd);
      map_characters(text, [](char32_t code) { return is_nonspacing_mark(code) ? kDropped : code; });
    }
    if (lowercase_) text.text = to_lowercase(text.text);
  }

 private:
  static bool is_chinese(char32_t code) {
    return (code >= 0x4E00 && code <= 0x9FFF) || (code >= 0x3400 && code <= 0x4DBF) ||
           (code >= 0x20000 && code <= 0x2A6DF) || (code >= 0x2A700 && code <= 0x2B81F) ||
           (code >= 0x2B920 && code <= 0x2CEAF) || (code >= 0xF900 && code <= 0xFAFF) ||
           (code >= 0x2F800 && code <= 0x2FA1F);
  }

  static void separate_chinese(std::string& text) {
    std::string out;
    out.reserve(text.size());
    for (size_t pos = 0; pos < text.size();) {
      const Utf8Char c = utf8_at(text, pos);
      const bool chinese = is_chinese(c.code);
      if (chinese) out += ' ';
      out.append(text, pos, c.size);
      if (chinese) out += ' ';
      pos += c.size;
    }
    text = std::move(out);
  }

  bool clean_;
  bool chinese_;
  bool accents_;
  bool lowercase_;
};

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    std::string out;
    append_byte_level(out, text.text);
    text.growth.spend("normalizer 'ByteLevel'", out.size() - text.text.size());
    text.text = std::move(out);
  }
};

std::unique_ptr<Normalizer> parse_precompiled(const JsonObject& object) {
  const std::string text = object.string("precompiled_charsmap");
  std::string bytes;
  if (!append_from_base64(bytes, text)) throw object.error("precompiled_charsmap", "not base64");
  auto map = CharsMap::parse(bytes);
  if (!map) throw object.error("precompiled_charsmap", map.error());
  return std::make_unique<PrecompiledNormalizer>(std::move(*map));
}

std::unique_ptr<Normalizer> parse(const JsonObject& object) {
  const std::string type = object.string("type");
  if (type == "Sequence") {
    return std::make_unique<SequenceNormalizer>(parse_steps<Normalizer>(object, "normalizers", parse));
  }
  if (type == "Prepend") return std::make_unique<PrependNormalizer>(object.string("prepend"));
  if (type == "Replace") {
    return std::make_unique<ReplaceNormalizer>(Pattern::from_json(object, "pattern"),
                                               object.string("content"));
  }
  if (type == "NFC") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfc);
  if (type == "NFD") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfd);
  if (type == "NFKC") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfkc);
  if (type == "NFKD") return std::make_unique<UnicodeNormalizer>(NormalizationForm::kNfkd);
  if (type == "Lowercase") return std::make_unique<LowercaseNormalizer>();
  if (type == "Strip") {
    return std::make_unique<StripNormalizer>(object.boolean("strip_left"), object.boolean("strip_right"));
  }
  if (type == "StripAccents") return std::make_unique<StripAccentsNormalizer>();
  if (type == "ByteLevel") return std::make_unique<ByteLevelNormalizer>();
  if (type == "Nmt") return std::make_unique<NmtNormalizer>();
  if (type == "Precompiled") return parse_precompiled(object);
  if (type == "BertNormalizer") {
    const bool lowercase = object.boolean("lowercase");
    return std::make_unique<BertNormalizer>(object.boolean("clean_text"),
                                            object.boolean("handle_chinese_chars"),
                                            object.boolean_or("strip_accents", lowercase), lowercase);
  }
  throw object.error("type", fmt::format("normalizer '{}' is not supported", type));
}

}  // namespace

std::unique_ptr<Normalizer> Normalizer::from_json(const JsonObject& parent, std::string_view key) {
  return parent.has(key) ? parse(parent.object(key)) : nullptr;
}

}  // namespace quire::tokenize
