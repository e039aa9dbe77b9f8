#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace quire::tokenize {

/// Keys that occur twice in an object of a JSON text; parsers keep only the last value.
struct DoubledKeys {
  size_t count = 0;
  std::string first;  // the path of the first one, "model.vocab.a"; elements of arrays as "[3]"
};

/// REQUIRES: `text` is valid JSON, at most a few hundred levels deep.
DoubledKeys find_doubled_keys(std::string_view text);

}  // namespace quire::tokenize
