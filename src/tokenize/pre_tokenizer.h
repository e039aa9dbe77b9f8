#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenize/growth.h"
#include "tokenize/split.h"

namespace quire::tokenize {

/// A text and the pieces of it that the model will tokenize each by itself.
struct PieceList {
  std::string text;          // valid UTF-8
  std::vector<Span> pieces;  // in order, none empty; what lies between them is dropped
  bool from_start;           // text[0] stems from the very first character of the whole input
  Growth& growth;            // of the whole encoding

  std::string_view piece(const Span& span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

/// Splits normalized text into pieces, perhaps rewriting it. Immutable and thread-safe. Throws Error where
/// the text's growth is spent.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PieceList& list) const = 0;

  /// nullptr if `key` is absent. Throws Error naming file and key where a type is unknown or malformed.
  static std::unique_ptr<PreTokenizer> from_json(const JsonObject& parent, std::string_view key);
};

/// The settings that Metaspace has as a pre-tokenizer and as a decoder.
struct Metaspace {
  enum class Prepend : uint8_t { kFirst, kNever, kAlways };
  std::string replacement;  // one character
  Prepend prepend = Prepend::kAlways;
  bool split = true;

  static Metaspace from_json(const JsonObject& object);
};

}  // namespace quire::tokenize
