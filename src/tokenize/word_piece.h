#pragma once

#include <memory>
#include <string>

#include "tokenize/token_model.h"
#include "tokenize/token_trie.h"

namespace quire::tokenize {

/// BERT's: a word is written from the left, each time by the longest entry that fits; of entries behind the
/// first, those with a prefix are meant ("##ing"). A word that cannot be written so, or is too long, is one
/// unknown token.
class WordPiece : public TokenModel {
 public:
  static std::unique_ptr<WordPiece> from_json(const JsonObject& object);

  std::unique_ptr<Run> start(size_t text_bytes) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  class WordRun;

  Vocabulary vocabulary_;
  TokenTrie trie_;
  TokenTrie::Node inside_ = TokenTrie::kNone;  // behind the prefix
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
