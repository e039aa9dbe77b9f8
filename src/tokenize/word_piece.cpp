#include "tokenize/word_piece.h"

#include <fmt/format.h>

#include "base/utf8.h"

namespace quire::tokenize {
namespace {

TokenId unknown_token(const JsonObject& object, const Vocabulary& vocabulary) {
  const std::string text = object.string("unk_token");
  const TokenId id = vocabulary.find(text);
  if (id < 0) throw object.error("unk_token", fmt::format("'{}' is not in the vocabulary", text));
  return id;
}

}  // namespace

class WordPiece::WordRun : public TokenModel::Run {
 public:
  explicit WordRun(const WordPiece& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<TokenId>& out) override {
    const size_t before = out.size();
    bool known = count_utf8(piece) <= model_.max_characters_;
    for (size_t pos = 0; known && pos < piece.size();) {
      TokenTrie::Node node = pos == 0 ? TokenTrie::kRoot : model_.inside_;
      TokenId best = -1;
      size_t end = pos;
      for (size_t at = pos; at < piece.size() && node != TokenTrie::kNone;) {
        node = model_.trie_.step(node, piece[at++]);
        if (node == TokenTrie::kNone || model_.trie_.token(node) < 0) continue;
        best = model_.trie_.token(node);
        end = at;
      }
      known = best >= 0;
      if (known) out.push_back(best);
      pos = end;
    }
    if (known) return;
    out.resize(before);
    out.push_back(model_.unknown_);
  }

 private:
  const WordPiece& model_;
};

std::unique_ptr<WordPiece> WordPiece::from_json(const JsonObject& object) {
  auto model = std::make_unique<WordPiece>();
  model->vocabulary_ = Vocabulary::from_json(object, "vocab");
  const Vocabulary& vocabulary = model->vocabulary_;
  model->unknown_ = unknown_token(object, vocabulary);
  model->max_characters_ = static_cast<size_t>(object.integer("max_input_chars_per_word", 0, INT32_MAX));
  std::vector<std::pair<std::string_view, TokenId>> entries;
  for (const auto& [text, value] : object.object("vocab").raw()) {
    entries.emplace_back(text, vocabulary.find(text));
  }
  model->trie_ = TokenTrie(std::move(entries));
  model->inside_ = model->trie_.walk(TokenTrie::kRoot, object.string("continuing_subword_prefix"));
  return model;
}

std::unique_ptr<TokenModel::Run> WordPiece::start(size_t) const { return std::make_unique<WordRun>(*this); }

class WordLevel::WordRun : public TokenModel::Run {
 public:
  explicit WordRun(const WordLevel& model) : model_(model) {}

  void encode(std::string_view piece, std::vector<TokenId>& out) override {
    const TokenId id = model_.vocabulary_.find(piece);
    out.push_back(id < 0 ? model_.unknown_ : id);
  }

 private:
  const WordLevel& model_;
};

std::unique_ptr<WordLevel> WordLevel::from_json(const JsonObject& object) {
  auto model = std::make_unique<WordLevel>();
  model->vocabulary_ = Vocabulary::from_json(object, "vocab");
  model->unknown_ = unknown_token(object, model->vocabulary_);
  return model;
}

std::unique_ptr<TokenModel::Run> WordLevel::start(size_t) const { return std::make_unique<WordRun>(*this); }

}  // namespace quire::tokenize
