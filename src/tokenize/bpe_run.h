#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tokenize/bpe.h"
#include "tokenize/word_cache.h"

namespace quire::tokenize {

class BpeRun : public TokenModel::Run {
 public:
  BpeRun(const Bpe& model, size_t text_bytes) : model_(model), cache_(text_bytes) {}
  void encode(std::string_view piece, std::vector<TokenId>& out) override;

 private:
  struct Symbol {
    TokenId id;
    uint32_t previous;  // kNone at the ends; a symbol that was merged away has kGone in `next`, and its other
                        // fields are invalid
    uint32_t next;
  };
  static constexpr uint32_t kNone = UINT32_MAX;
  static constexpr uint32_t kGone = UINT32_MAX - 1;

  void encode_part(std::string_view piece, std::vector<TokenId>& out);
  void encode_cached(std::string_view word, std::vector<TokenId>& out);
  void encode_word(std::string_view word, std::vector<TokenId>& out);
  void to_symbols(std::string_view word);
  TokenId symbol_of(std::string_view word, size_t pos, uint32_t size, char32_t code);
  bool add_bytes(std::string_view text);
  bool append_bytes(std::string_view text, std::vector<TokenId>& out) const;
  Bpe::Merge merge_of(TokenId left, TokenId right);
  void merge_short();
  void merge_long();
  void offer(uint32_t left);
  void emit(std::vector<TokenId>& out);
  void emit_symbol(TokenId id, std::vector<TokenId>& out);
  void emit_apart(TokenId id, std::vector<TokenId>& out);

  const Bpe& model_;
  WordCache cache_;
  std::vector<TokenId> ids_;        // the symbols of a word
  std::vector<Bpe::Merge> merges_;  // merge_short: of each symbol with the next
  std::vector<Symbol> symbols_;     // merge_long: the same, linked
  std::vector<uint64_t> queue_;     // a min-heap of rank << 32 | index of the left symbol
  std::string decorated_;           // a character with its prefix and suffix
  bool after_unknown_ = false;      // within the current word
  // The last parts from which each unused entry could be merged.
  boost::unordered_flat_map<TokenId, std::pair<TokenId, TokenId>> halves_;
};

}  // namespace quire::tokenize
