#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace quire::tokenize {

/// Receives a list of tokens, each in any number of writes (of whole characters), and its end.
class TokenSink {
 public:
  virtual ~TokenSink() = default;
  virtual void write(std::string_view text) = 0;
  virtual void end_token() = 0;
  /// No more tokens: passes on the text held back.
  virtual void finish() = 0;
};

/// Rewrites a list of tokens into another; the joined texts of the last list are the decoded text. Immutable
/// and thread-safe. Decoding a whole list and token by token use the same code, so their results cannot
/// differ.
class DecodeStep {
 public:
  virtual ~DecodeStep() = default;
  /// Starts a list whose rewritten tokens go to `next`, which must outlive the returned sink.
  virtual std::unique_ptr<TokenSink> start(TokenSink& next) const = 0;
  /// The result for one token that is neither first nor last; it may no longer have whole characters.
  /// `fused`: an earlier step made it a part of a longer token.
  virtual std::string inside(std::string_view token, bool fused) const = 0;
  /// Whether it joins all tokens into one, so that later steps get no single tokens.
  virtual bool fuses() const { return false; }
};

class TokenDecoder {
 public:
  /// The steps under `key`; if absent, tokens are joined by spaces. Throws Error naming file and key.
  TokenDecoder(const JsonObject& parent, std::string_view key);

  class Run;
  std::unique_ptr<Run> start() const;
  /// The bytes of a token inside a text.
  std::string inside(std::string_view token) const;

 private:
  std::vector<std::unique_ptr<DecodeStep>> steps_;
};

/// The state of one list of tokens in the steps.
class TokenDecoder::Run {
 public:
  explicit Run(const std::vector<std::unique_ptr<DecodeStep>>& steps);
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  void push(std::string_view token) {
    first().write(token);
    first().end_token();
  }
  void finish() { first().finish(); }
  /// The text that has become final since the last call.
  std::string take();

 private:
  class Output : public TokenSink {
   public:
    void write(std::string_view text) override { taken += text; }
    void end_token() override {}
    void finish() override {}
    std::string taken;
  };
  TokenSink& first() { return sinks_.empty() ? output_ : *sinks_.back(); }

  Output output_;
  std::vector<std::unique_ptr<TokenSink>> sinks_;  // the last step first
};

}  // namespace quire::tokenize
