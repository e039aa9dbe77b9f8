#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "text/bpe.h"

namespace quire {

/// Remembers the tokens of short words within one encoding. Bounded: when full it takes no more.
class WordCache {
 public:
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

class BpeRun : public TokenModel::Run {
 public:
  BpeRun(const Bpe& model, size_t text_bytes) : model_(model), cache_(text_bytes) {}
  void encode(std::string_view piece, std::vector<TokenId>& out) override;

 private:
  struct Symbol {
    TokenId id;
    uint32_t previous;  // kNone at the ends; of a merged-away symbol nothing holds but kGone in `next`
    uint32_t next;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kGone = UINT32_MAX - 1;

  void encode_cached(std::string_view word, std::vector<TokenId>& out);
  void encode_word(std::string_view word, std::vector<TokenId>& out);
  void to_symbols(std::string_view word);
  TokenId symbol_of(std::string_view word, size_t pos, uint32_t size, char32_t code);
  bool add_bytes(std::string_view text);
  void add(TokenId id);
  void offer(uint32_t left);
  void merge_all();

  const Bpe& model_;
  WordCache cache_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> queue_;  // a min-heap of rank << 32 | index of the left symbol
  std::string decorated_;        // a character with its prefix and suffix
};

}  // namespace quire
