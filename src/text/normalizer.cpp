#include "text/normalizer.h"

#include <algorithm>
#include <optional>
#include <vector>

#include <fmt/format.h>

#include "text/byte_level.h"
#include "text/json_steps.h"
#include "text/split.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace quire {
namespace {

/// What a Replace may make of a text that is not long itself; in use, one character becomes three bytes.
constexpr size_t kMaxGrown = size_t{64} << 20;

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
    if (!text.text.empty()) text.text.insert(0, prefix_);
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
      // What replaces several characters counts as coming from the last of them.
      const bool one_char = utf8_at(text.text, 0).size == matches[0].end;
      text.from_start = text.from_start && one_char && !content_.empty();
    }
    const size_t size = text.text.size() + matches.size() * content_.size();
    if (size > std::max(kMaxGrown, 4 * text.text.size())) {
      throw Error("the tokenizer's normalizer 'Replace' makes more than 64 MiB of the text");
    }
    std::string out;
    out.reserve(size);
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
    const std::string& s = text.text;
    std::string out;
    out.reserve(s.size());
    for (size_t pos = 0; pos < s.size();) {
      const Utf8Char c = utf8_at(s, pos);
      if (!is_mark(c.code)) {
        out.append(s, pos, c.size);
      } else if (pos == 0) {
        text.from_start = false;
      }
      pos += c.size;
    }
    text.text = std::move(out);
  }
};

class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override {
    std::string out;
    append_byte_level(out, text.text);
    text.text = std::move(out);
  }
};

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
  throw object.error("type", fmt::format("normalizer '{}' is not supported", type));
}

}  // namespace

std::unique_ptr<Normalizer> Normalizer::from_json(const JsonObject& parent, std::string_view key) {
  return parent.has(key) ? parse(parent.object(key)) : nullptr;
}

}  // namespace quire
