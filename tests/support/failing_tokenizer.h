#pragma once

#include <memory>
#include <new>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/support/letter_tokenizer.h"

namespace quire::test {

/// Letters, with the limits that the patterns of a tokenizer's file have: a text with "!" in it has no
/// tokens, one with "?" needs too much memory, token kBad has no text, and with `flush_fails` no text has an
/// end.
class FailingTokenizer final : public LetterTokenizer {
 public:
  static constexpr TokenId kBad = 255;

  explicit FailingTokenizer(size_t vocab_size, bool flush_fails = false)
      : LetterTokenizer(vocab_size), flush_fails_(flush_fails) {}

  std::vector<TokenId> encode(std::string_view text, bool add_special_tokens) const override {
    if (text.find('!') != std::string_view::npos) throw Error("the pattern needs too many steps");
    if (text.find('?') != std::string_view::npos) throw std::bad_alloc();
    return LetterTokenizer::encode(text, add_special_tokens);
  }
  std::string token_bytes(TokenId id) const override {
    if (id == kBad) throw Error("the token has no text");
    return LetterTokenizer::token_bytes(id);
  }
  std::unique_ptr<tokenize::DecodeStream> decode_stream(bool) const override {
    return std::make_unique<Stream>(*this);
  }

 private:
  class Stream final : public tokenize::DecodeStream {
   public:
    explicit Stream(const FailingTokenizer& tokenizer) : tokenizer_(tokenizer) {}
    std::string push(TokenId id) override { return tokenizer_.token_bytes(id); }
    std::string flush() override {
      if (tokenizer_.flush_fails_) throw Error("the text has no end");
      return {};
    }

   private:
    const FailingTokenizer& tokenizer_;
  };
  bool flush_fails_;
};

}  // namespace quire::test
