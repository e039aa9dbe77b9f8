#pragma once

#include <memory>
#include <vector>

#include "tokenize/token_model.h"
#include "tokenize/token_trie.h"

namespace quire::tokenize {

struct UnigramOptions {
  enum class Use : uint8_t {
    kNormal,
    kAlways,  // SentencePiece's user-defined pieces: scored by length, above all others
    kNever,   // used only by byte fallback
  };

  std::vector<double> scores;  // by id, finite
  std::vector<Use> uses;       // by id; empty: all normal
  TokenId unknown = 0;         // an entry
  bool byte_fallback = false;
  /// SentencePiece adds scores in single precision, the tokenizers library in double. This decides between
  /// two segmentations with nearly equal scores.
  bool single_precision = false;
};

/// A unigram language model (Kudo 2018): of all segmentations of a piece into entries, the one with the
/// highest sum of scores (Viterbi). A character that is not an entry is unknown, with a score 10 below the
/// lowest; a run of them becomes bytes or one unknown token.
class Unigram : public TokenModel {
 public:
  Unigram(Vocabulary vocabulary, UnigramOptions options);
  static std::unique_ptr<Unigram> from_json(const JsonObject& object);

  std::unique_ptr<Run> start(size_t text_bytes) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  template <class Real>
  class ViterbiRun;

  Vocabulary vocabulary_;
  UnigramOptions options_;
  TokenTrie trie_;
  double lowest_ = 0;
  std::vector<TokenId> bytes_;  // by byte, -1: none; empty unless fallback is on
};

}  // namespace quire::tokenize
