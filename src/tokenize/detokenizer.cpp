#include <algorithm>
#include <utility>

#include "base/utf8.h"
#include "tokenize/tokenizer.h"

namespace quire::tokenize {
namespace {

class ByteStream : public DecodeStream {
 public:
  ByteStream(const Tokenizer& tokenizer, bool skip_special_tokens)
      : tokenizer_(tokenizer), skip_special_tokens_(skip_special_tokens) {}
  std::string push(TokenId id) override {
    std::string text;
    if (!skip_special_tokens_ || !tokenizer_.is_special(id)) repair_.push(tokenizer_.token_bytes(id), text);
    return text;
  }
  std::string flush() override {
    std::string text;
    repair_.finish(text);
    return text;
  }

 private:
  const Tokenizer& tokenizer_;
  bool skip_special_tokens_;
  Utf8Repair repair_;
};

}  // namespace

std::unique_ptr<DecodeStream> Tokenizer::decode_stream(bool skip_special_tokens) const {
  return std::make_unique<ByteStream>(*this, skip_special_tokens);
}

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool skip_special_tokens, std::vector<TokenId> shown)
    : tokenizer_(tokenizer),
      skips_(skip_special_tokens && !shown.empty()),
      shown_(std::move(shown)),
      stream_(tokenizer.decode_stream(skip_special_tokens && !skips_)) {}

std::string Detokenizer::push(TokenId id) {
  if (skips_ && tokenizer_.is_special(id) && std::ranges::find(shown_, id) == shown_.end()) return {};
  return stream_->push(id);
}

std::string Detokenizer::flush() { return stream_->flush(); }

}  // namespace quire::tokenize
