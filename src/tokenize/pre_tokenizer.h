#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "tokenize/growth.h"
#include "tokenize/split.h"

namespace quire::tokenize {

/// A text and its pieces, each of which the model tokenizes separately.
struct PieceList {
  std::string text;          // valid UTF-8
  std::vector<Span> pieces;  // in order, none empty; text between them is dropped
  bool from_start;           // whether text[0] comes from the first character of the whole input
  Growth& growth;            // for the whole encoding

  std::string_view piece(const Span& span) const {
    return std::string_view(text).substr(span.begin, span.end - span.begin);
  }
};

/// Splits normalized text into pieces, and may rewrite it. Immutable and thread-safe. Throws Error if the
/// text grows beyond its limit.
class PreTokenizer {
 public:
  virtual ~PreTokenizer() = default;
  virtual void apply(PieceList& list) const = 0;

  /// nullptr if `key` is absent. Throws Error naming file and key if a type is unknown or malformed.
  static std::unique_ptr<PreTokenizer> from_json(const JsonObject& parent, std::string_view key);
};

/// The common settings of Metaspace as a pre-tokenizer and as a decoder.
struct Metaspace {
  enum class Prepend : uint8_t { kFirst, kNever, kAlways };
  std::string replacement;  // one character
  Prepend prepend = Prepend::kAlways;
  bool split = true;

  static Metaspace from_json(const JsonObject& object);
};

}  // namespace quire::tokenize
