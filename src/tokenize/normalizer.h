#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "base/json.h"
#include "tokenize/growth.h"

namespace quire::tokenize {

struct NormalizedText {
  std::string text;  // valid UTF-8
  bool from_start;   // its first character stems from the very first one of the whole input
  Growth& growth;    // of the whole encoding
};

/// The first step: rewrites a text before anything is split. Immutable and thread-safe. Throws Error where
/// the text's growth is spent.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;

  /// nullptr if `key` is absent. Throws Error naming file and key where a type is unknown or malformed.
  static std::unique_ptr<Normalizer> from_json(const JsonObject& parent, std::string_view key);
};

}  // namespace quire::tokenize
