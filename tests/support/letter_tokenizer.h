#pragma once

#include <string>
#include <vector>

#include "tokenize/tokenizer.h"

namespace quire::test {

/// A tokenizer without a file: token i is the letter 'a' + i % 26, token 0 is special and shows nothing.
class LetterTokenizer : public tokenize::Tokenizer {
 public:
  explicit LetterTokenizer(size_t vocab_size) : vocab_size_(vocab_size) {}
  std::vector<TokenId> encode(std::string_view text, bool) const override {
    std::vector<TokenId> ids;
    for (const char c : text) ids.push_back(c >= 'a' && c <= 'z' ? c - 'a' + 26 : 1);
    return ids;
  }
  std::string decode(std::span<const TokenId> ids, bool) const override {
    std::string text;
    for (const TokenId id : ids) text += token_bytes(id);
    return text;
  }
  std::string token_bytes(TokenId id) const override {
    return id == 0 ? std::string() : std::string(1, static_cast<char>('a' + id % 26));
  }
  std::string_view token_text(TokenId) const override { return "letter"; }
  std::optional<TokenId> find_token(std::string_view) const override { return std::nullopt; }
  bool is_special(TokenId id) const override { return id == 0; }
  size_t vocab_size() const override { return vocab_size_; }

 private:
  size_t vocab_size_;
};

}  // namespace quire::test
