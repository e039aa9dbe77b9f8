#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"

namespace quire::tokenize {

/// Remembers the tokens of short words within one encoding. Bounded: when full it accepts no more.
class WordCache {
 public:
  /// `text_bytes`: the approximate size of the text.
  explicit WordCache(size_t text_bytes);

  static constexpr size_t kMaxWordBytes = 48;

  /// Appends the tokens of `word` and returns true if it is known.
  bool find(std::string_view word, uint64_t hash, std::vector<TokenId>& out) const;
  void insert(std::string_view word, uint64_t hash, const TokenId* ids, size_t count);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0;   // offset in texts_
    uint32_t ids = 0;    // offset in ids_
    uint16_t bytes = 0;  // 0: free
    uint16_t count = 0;
  };

  size_t capacity_;
  size_t used_ = 0;
  std::vector<Slot> slots_;  // a power of two, at most half of them taken; made at the first insertion
  std::string texts_;
  std::vector<TokenId> ids_;
};

}  // namespace quire::tokenize
