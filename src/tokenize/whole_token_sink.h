#pragma once

#include <string>
#include <string_view>

#include "tokenize/token_decoder.h"

namespace quire::tokenize {

/// For steps that need each token as a whole.
class WholeTokenSink : public TokenSink {
 public:
  explicit WholeTokenSink(TokenSink& next) : next_(next) {}
  void write(std::string_view text) final { token_ += text; }
  void end_token() final {
    on_token(token_);
    token_.clear();
  }
  void finish() override { next_.finish(); }

 protected:
  virtual void on_token(std::string_view token) = 0;
  void pass(std::string_view token) {
    next_.write(token);
    next_.end_token();
  }
  TokenSink& next_;

 private:
  std::string token_;
};

}  // namespace quire::tokenize
