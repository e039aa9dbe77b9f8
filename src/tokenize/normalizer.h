#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenize/growth.h"

namespace quire::tokenize {

struct NormalizedText {
  std::string text;  // valid UTF-8
  bool from_start;   // whether its first character comes from the first character of the whole input
  Growth& growth;    // for the whole encoding
};

/// The first step: rewrites a text before it is split. Immutable and thread-safe. Throws Error if the text
/// grows beyond its limit.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;

  /// nullptr if `key` is absent. Throws Error naming file and key if a type is unknown or malformed.
  static std::unique_ptr<Normalizer> from_json(const JsonObject& parent, std::string_view key);
};

}  // namespace quire::tokenize
