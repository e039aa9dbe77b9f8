#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "tokenize/vocabulary.h"

namespace quire::tokenize {

/// Turns pieces of text into tokens. Immutable and thread-safe.
class TokenModel {
 public:
  /// The working memory of one encoding; for one thread.
  class Run {
   public:
    virtual ~Run() = default;
    /// Appends the tokens of `piece` (valid UTF-8, not empty).
    virtual void encode(std::string_view piece, std::vector<TokenId>& out) = 0;
  };

  virtual ~TokenModel() = default;
  /// The model must outlive the run. `text_bytes`: the approximate size of its input.
  virtual std::unique_ptr<Run> start(size_t text_bytes) const = 0;
  virtual const Vocabulary& vocabulary() const = 0;

  /// Throws Error naming file and key if the type is unknown or malformed.
  static std::unique_ptr<TokenModel> from_json(const JsonObject& parent, std::string_view key);
};

}  // namespace quire::tokenize
