#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::tokenize {

/// Keys that an object of a JSON text has twice; of those, parsers keep the last value only.
struct DoubledKeys {
  size_t count = 0;
  std::string first;  // the first one's path, "model.vocab.a"; elements of arrays as "[3]"
};

/// REQUIRES that `text` is valid JSON, no more than a few hundred levels deep.
DoubledKeys find_doubled_keys(std::string_view text);

}  // namespace quire::tokenize
