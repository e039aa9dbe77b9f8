#pragma once

#include <optional>

#include "tokenize/charsmap.h"
#include "tokenize/normalizer.h"
#include "tokenize/sentencepiece_file.h"
#include "tokenize/text_finder.h"

namespace quire::tokenize {

/// SentencePiece's own normalization: user-defined pieces stand, then the longest rule of the charsmap
/// replaces; spaces become U+2581, one is put before (or behind) the text, others at its ends and repeated
/// ones may go.
class SentencePieceNormalizer : public Normalizer {
 public:
  enum class Prefix : uint8_t { kAlways, kFirst, kNever };

  /// `prefix`: kFirst puts the space before the whole text only, not behind special tokens.
  SentencePieceNormalizer(const SentencePieceFile& file, std::optional<CharsMap> map, TextFinder user_defined,
                          Prefix prefix);
  void apply(NormalizedText& text) const override;

 private:
  struct Step {
    std::string_view text;  // what comes out
    size_t size;            // bytes that went in
  };
  Step step(std::string_view text, size_t pos) const;
  /// Bytes at `pos` that come out as they are and hold no space.
  size_t plain_run(std::string_view text, size_t pos) const;

  std::optional<CharsMap> map_;
  TextFinder user_defined_;
  Prefix prefix_;
  bool as_suffix_;
  bool remove_extra_;
  bool escape_;
};

}  // namespace quire::tokenize
