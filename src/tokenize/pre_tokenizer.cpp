#include "tokenize/pre_tokenizer.h"

#include <optional>

#include <fmt/format.h>

#include "base/utf8.h"
#include "tokenize/byte_level.h"
#include "tokenize/json_steps.h"
#include "tokenize/unicode.h"

namespace quire::tokenize {
namespace {

/// Splits every piece of `list` at what `find` appends for it.
template <class Find>
void split_pieces(PieceList& list, bool invert, SplitBehavior behavior, const Find& find) {
  std::vector<Span> pieces;
  std::vector<Span> matches;
  pieces.reserve(list.pieces.size() + list.text.size() / 4);
  for (const Span& piece : list.pieces) {
    matches.clear();
    find(list.piece(piece), matches);
    const size_t before = pieces.size();
    split_at(piece.end - piece.begin, matches, invert, behavior, pieces);
    for (size_t i = before; i < pieces.size(); ++i) {
      pieces[i].begin += piece.begin;
      pieces[i].end += piece.begin;
    }
  }
  list.pieces = std::move(pieces);
}

class SequencePreTokenizer : public PreTokenizer {
 public:
  explicit SequencePreTokenizer(std::vector<std::unique_ptr<PreTokenizer>> steps)
      : steps_(std::move(steps)) {}
  void apply(PieceList& list) const override {
    for (const auto& step : steps_) step->apply(list);
  }

 private:
  std::vector<std::unique_ptr<PreTokenizer>> steps_;
};

class SplitPreTokenizer : public PreTokenizer {
 public:
  SplitPreTokenizer(Pattern pattern, SplitBehavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  void apply(PieceList& list) const override {
    split_pieces(list, invert_, behavior_,
                 [&](std::string_view piece, std::vector<Span>& out) { pattern_.find_all(piece, out); });
  }

 private:
  Pattern pattern_;
  SplitBehavior behavior_;
  bool invert_;
};

/// Splits at single characters of a kind.
class CharPreTokenizer : public PreTokenizer {
 public:
  CharPreTokenizer(bool (*is_delimiter)(char32_t), SplitBehavior behavior)
      : is_delimiter_(is_delimiter), behavior_(behavior) {}
  void apply(PieceList& list) const override {
    split_pieces(list, false, behavior_, [&](std::string_view piece, std::vector<Span>& out) {
      for (size_t pos = 0; pos < piece.size();) {
        const Utf8Char c = utf8_at(piece, pos);
        if (is_delimiter_(c.code)) out.push_back({pos, pos + c.size});
        pos += c.size;
      }
    });
  }

 private:
  bool (*is_delimiter_)(char32_t);
  SplitBehavior behavior_;
};

class ByteLevelPreTokenizer : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, bool use_regex) : add_prefix_space_(add_prefix_space) {
    if (use_regex) regex_ = *Regex::compile(kGpt2Pattern);
  }

  void apply(PieceList& list) const override {
    std::string out;
    std::vector<Span> pieces;
    out.reserve(list.text.size() + list.text.size() / 4 + 16);
    pieces.reserve(list.pieces.size() + list.text.size() / 4);
    std::string prefixed;
    std::vector<Span> matches;
    std::vector<Span> parts;
    if (!list.pieces.empty() && list.pieces[0].begin > 0) list.from_start = false;
    for (const Span& span : list.pieces) {
      std::string_view piece = list.piece(span);
      if (add_prefix_space_ && piece[0] != ' ') {
        prefixed = ' ';
        prefixed += piece;
        piece = prefixed;
      }
      parts.clear();
      if (regex_) {
        matches.clear();
        regex_->find_all(piece, matches);
        split_at(piece.size(), matches, false, SplitBehavior::kIsolated, parts);
      } else {
        parts.push_back({0, piece.size()});
      }
      for (const Span& part : parts) {
        const size_t begin = out.size();
        append_byte_level(out, piece.substr(part.begin, part.end - part.begin));
        pieces.push_back({begin, out.size()});
      }
    }
    if (out.size() > list.text.size()) {
      list.growth.spend("pre-tokenizer 'ByteLevel'", out.size() - list.text.size());
    }
    list.text = std::move(out);
    list.pieces = std::move(pieces);
  }

 private:
  bool add_prefix_space_;
  std::optional<Regex> regex_;
};

class MetaspacePreTokenizer : public PreTokenizer {
 public:
  explicit MetaspacePreTokenizer(Metaspace settings) : settings_(std::move(settings)) {}

  void apply(PieceList& list) const override {
    const std::string& mark = settings_.replacement;
    std::string out;
    std::vector<Span> pieces;
    std::vector<Span> matches;
    out.reserve(list.text.size() * 3 / 2 + mark.size());
    for (const Span& span : list.pieces) {
      const std::string_view piece = list.piece(span);
      const size_t begin = out.size();
      const bool first = span.begin == 0 && list.from_start;
      const bool wanted = settings_.prepend == Metaspace::Prepend::kAlways ||
                          (settings_.prepend == Metaspace::Prepend::kFirst && first);
      if (wanted && piece[0] != ' ' && !piece.starts_with(mark)) out += mark;
      size_t copied = 0;
      for (size_t at = piece.find(' '); at != piece.npos; at = piece.find(' ', copied)) {
        out += piece.substr(copied, at - copied);
        out += mark;
        copied = at + 1;
      }
      out += piece.substr(copied);
      if (!settings_.split) {
        pieces.push_back({begin, out.size()});
        continue;
      }
      matches.clear();
      for (size_t at = out.find(mark, begin); at != out.npos; at = out.find(mark, at + mark.size())) {
        matches.push_back({at - begin, at - begin + mark.size()});
      }
      const size_t before = pieces.size();
      split_at(out.size() - begin, matches, false, SplitBehavior::kMergedWithNext, pieces);
      for (size_t i = before; i < pieces.size(); ++i) {
        pieces[i].begin += begin;
        pieces[i].end += begin;
      }
    }
    if (!list.pieces.empty() && list.pieces[0].begin > 0) list.from_start = false;
    if (out.size() > list.text.size()) {
      list.growth.spend("pre-tokenizer 'Metaspace'", out.size() - list.text.size());
    }
    list.text = std::move(out);
    list.pieces = std::move(pieces);
  }

 private:
  Metaspace settings_;
};

/// Words and runs of other visible characters; white space is dropped.
class WhitespacePreTokenizer : public PreTokenizer {
 public:
  void apply(PieceList& list) const override {
    split_pieces(list, true, SplitBehavior::kRemoved, [](std::string_view piece, std::vector<Span>& out) {
      enum class CharKind : uint8_t { kSpace, kWord, kOther };
      CharKind last = CharKind::kSpace;
      for (size_t pos = 0; pos < piece.size();) {
        const Utf8Char c = utf8_at(piece, pos);
        const CharKind kind = is_white_space(c.code) ? CharKind::kSpace
                              : is_word(c.code)      ? CharKind::kWord
                                                     : CharKind::kOther;
        if (kind != CharKind::kSpace) {
          if (kind == last) {
            out.back().end = pos + c.size;
          } else {
            out.push_back({pos, pos + c.size});
          }
        }
        last = kind;
        pos += c.size;
      }
    });
  }
};

/// Words and single punctuation marks; white space is dropped.
class BertPreTokenizer : public PreTokenizer {
 public:
  void apply(PieceList& list) const override {
    split_pieces(list, true, SplitBehavior::kRemoved, [](std::string_view piece, std::vector<Span>& out) {
      bool in_word = false;
      for (size_t pos = 0; pos < piece.size();) {
        const Utf8Char c = utf8_at(piece, pos);
        const bool space = is_white_space(c.code);
        const bool word = !space && !is_punctuation(c.code);
        if (word && in_word) {
          out.back().end = pos + c.size;
        } else if (!space) {
          out.push_back({pos, pos + c.size});
        }
        in_word = word;
        pos += c.size;
      }
    });
  }
};

std::unique_ptr<PreTokenizer> parse_pre_step(const JsonObject& object) {
  const std::string type = object.string("type");
  if (type == "Sequence") {
    return std::make_unique<SequencePreTokenizer>(
        parse_steps<PreTokenizer>(object, "pretokenizers", parse_pre_step));
  }
  if (type == "Split") {
    return std::make_unique<SplitPreTokenizer>(Pattern::from_json(object, "pattern"),
                                               split_behavior_from_json(object, "behavior"),
                                               object.boolean_or("invert", false));
  }
  if (type == "ByteLevel") {
    return std::make_unique<ByteLevelPreTokenizer>(object.boolean("add_prefix_space"),
                                                   object.boolean_or("use_regex", true));
  }
  if (type == "Metaspace") return std::make_unique<MetaspacePreTokenizer>(Metaspace::from_json(object));
  if (type == "Digits") {
    return std::make_unique<CharPreTokenizer>(is_numeric, object.boolean("individual_digits")
                                                              ? SplitBehavior::kIsolated
                                                              : SplitBehavior::kContiguous);
  }
  if (type == "Punctuation") {
    return std::make_unique<CharPreTokenizer>(
        is_punctuation,
        object.has("behavior") ? split_behavior_from_json(object, "behavior") : SplitBehavior::kIsolated);
  }
  if (type == "Whitespace") return std::make_unique<WhitespacePreTokenizer>();
  if (type == "BertPreTokenizer") return std::make_unique<BertPreTokenizer>();
  if (type == "CharDelimiterSplit") {
    const std::string delimiter = object.string("delimiter");
    if (!is_one_char(delimiter)) throw object.error("delimiter", "one character was expected");
    return std::make_unique<SplitPreTokenizer>(Pattern(delimiter), SplitBehavior::kRemoved, false);
  }
  if (type == "WhitespaceSplit") {
    return std::make_unique<CharPreTokenizer>(is_white_space, SplitBehavior::kRemoved);
  }
  throw object.error("type", fmt::format("pre-tokenizer '{}' is not supported", type));
}

}  // namespace

Metaspace Metaspace::from_json(const JsonObject& object) {
  Metaspace settings;
  settings.replacement = object.string("replacement");
  if (!is_one_char(settings.replacement)) throw object.error("replacement", "one character was expected");
  const std::string scheme = object.string_or("prepend_scheme", "always");
  if (scheme == "first") {
    settings.prepend = Prepend::kFirst;
  } else if (scheme == "never") {
    settings.prepend = Prepend::kNever;
  } else if (scheme != "always") {
    throw object.error("prepend_scheme", fmt::format("unknown scheme '{}'", scheme));
  }
  // Older files say it this way.
  if (!object.boolean_or("add_prefix_space", true)) {
    if (object.has("prepend_scheme") && settings.prepend != Prepend::kNever) {
      throw object.error("add_prefix_space", "false contradicts prepend_scheme");
    }
    settings.prepend = Prepend::kNever;
  }
  settings.split = object.boolean_or("split", true);
  return settings;
}

std::unique_ptr<PreTokenizer> PreTokenizer::from_json(const JsonObject& parent, std::string_view key) {
  return parent.has(key) ? parse_pre_step(parent.object(key)) : nullptr;
}

}  // namespace quire::tokenize
