#pragma once

#include <memory>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/json.h"

namespace quire::tokenize {

/// Adds the tokens that a model needs around a text. Immutable and thread-safe.
class PostProcessor {
 public:
  virtual ~PostProcessor() = default;
  virtual std::vector<TokenId> apply(std::vector<TokenId> ids, bool add_special_tokens) const = 0;

  /// nullptr if `key` is absent. Ids must be below `vocab_size`. Throws Error naming file and key.
  static std::unique_ptr<PostProcessor> from_json(const JsonObject& parent, std::string_view key,
                                                  size_t vocab_size);
};

}  // namespace quire::tokenize
