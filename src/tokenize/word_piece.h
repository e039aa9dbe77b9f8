#pragma once

#include <memory>
#include <string>

#include "tokenize/token_model.h"
#include "tokenize/token_trie.h"

namespace quire::tokenize {

/// BERT's model: a word is segmented from the left, each time with the longest matching entry; after the
/// first, entries with a prefix are used ("##ing"). A word that cannot be segmented, or is too long, becomes
/// one unknown token.
class WordPiece : public TokenModel {
 public:
  static std::unique_ptr<WordPiece> from_json(const JsonObject& object);

  std::unique_ptr<Run> start(size_t text_bytes) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  class WordRun;

  Vocabulary vocabulary_;
  TokenTrie trie_;
  TokenTrie::Node inside_ = TokenTrie::kNone;  // after the prefix
  TokenId unknown_ = -1;
  size_t max_characters_ = 0;
};

/// Each piece is an entry or unknown.
class WordLevel : public TokenModel {
 public:
  static std::unique_ptr<WordLevel> from_json(const JsonObject& object);

  std::unique_ptr<Run> start(size_t text_bytes) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  class WordRun;

  Vocabulary vocabulary_;
  TokenId unknown_ = -1;
};

}  // namespace quire::tokenize
