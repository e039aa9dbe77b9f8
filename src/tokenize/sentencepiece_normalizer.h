#pragma once

#include <optional>

#include "tokenize/charsmap.h"
#include "tokenize/normalizer.h"
#include "tokenize/sentencepiece_file.h"
#include "tokenize/text_finder.h"

namespace quire::tokenize {

/// SentencePiece's own normalization: user-defined pieces are unchanged; elsewhere the longest rule of the
/// charsmap applies. Spaces become U+2581, one is added before (or after) the text, and spaces at its ends
/// and repeated ones may be removed.
class SentencePieceNormalizer : public Normalizer {
 public:
  enum class Prefix : uint8_t { kAlways, kFirst, kNever };

  /// `prefix`: kFirst adds the space only before the whole text, not after special tokens.
  SentencePieceNormalizer(const SentencePieceFile& file, std::optional<CharsMap> map, TextFinder user_defined,
                          Prefix prefix);
  void apply(NormalizedText& text) const override;

 private:
  struct Step {
    std::string_view text;  // the output
    size_t size;            // bytes of input
  };
  Step step(std::string_view text, size_t pos) const;
  /// The number of bytes at `pos` that are unchanged and have no space.
  size_t plain_run(std::string_view text, size_t pos) const;

  std::optional<CharsMap> map_;
  TextFinder user_defined_;
  Prefix prefix_;
  bool as_suffix_;
  bool remove_extra_;
  bool escape_;
};

}  // namespace quire::tokenize
