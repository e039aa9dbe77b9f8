#pragma once

#include <array>
#include <atomic>
#include <bitset>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <boost/unordered/unordered_flat_map.hpp>
#include <boost/unordered/unordered_flat_set.hpp>

#include "tokenize/text_finder.h"
#include "tokenize/token_model.h"

namespace quire::tokenize {

struct BpeMerge {
  TokenId left;
  TokenId right;
  TokenId result;
  uint32_t rank;  // the lowest merges first; among equals, the leftmost
};

struct BpeOptions {
  std::string prefix;  // of every character except the first of a piece, in the vocabulary
  std::string suffix;  // of a piece's last character
  TokenId unknown = -1;
  bool fuse_unknown = false;
  bool byte_fallback = false;
  bool ignore_merges = false;  // a piece that is an entry becomes that entry

  // For SentencePiece only, without prefix and suffix.
  /// Characters that are not entries but occur in merges: the i-th has the id vocabulary.size() + i. A
  /// character that is not merged is unknown.
  std::vector<char32_t> extra_characters;
  std::vector<TokenId> whole;   // entries found before anything else, at one place the longest; never merged
  std::vector<TokenId> unused;  // entries that are split again into the parts they were merged from
};

/// Byte pair encoding (Sennrich et al. 2016) as in the `tokenizers` library: the characters of a piece become
/// symbols (or bytes, or the unknown token); then the mergeable pair with the lowest rank, the leftmost among
/// equals, is merged repeatedly until there is none. SentencePiece's and tiktoken's BPE are the same, with
/// the merges from merges_by_rank. Thread-safe like every TokenModel; its caches never affect a result.
class Bpe : public TokenModel {
 public:
  /// The ids of `merges` and `options` must be entries or extra characters, and the text of each result must
  /// be that of left and right (without the prefix). Of two merges of the same pair, the later one is used.
  Bpe(Vocabulary vocabulary, BpeOptions options, std::span<const BpeMerge> merges);
  static std::unique_ptr<Bpe> from_json(const JsonObject& object);

  std::unique_ptr<Run> start(size_t text_bytes) const override;
  const Vocabulary& vocabulary() const override { return vocabulary_; }

 private:
  friend class BpeRun;

  struct Merge {
    uint32_t rank;
    TokenId result;
  };

  static uint64_t pair_key(uint32_t left, uint32_t right) { return uint64_t{left} << 32 | right; }

  void index_characters();
  void index_whole();
  void note_joint(TokenId left, TokenId right);
  std::string text_of(TokenId id) const;

  bool is_entry(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < vocabulary_.size(); }
  /// The symbol of a character; -1: none.
  TokenId character(char32_t code) const {
    if (code < low_characters_.size()) return low_characters_[code];
    const auto found = high_characters_.find(code);
    return found == high_characters_.end() ? -1 : found->second;
  }
  const Merge* merge_of(TokenId left, TokenId right) const {
    const auto found = merges_.find(pair_key(static_cast<uint32_t>(left), static_cast<uint32_t>(right)));
    return found == merges_.end() ? nullptr : &found->second;
  }
  bool may_join(char32_t left, char32_t right) const;

  // Whether encoding an entry's text is known to give that entry, as for most words of a text.
  bool is_own_token(TokenId id) const {
    return own_tokens_[static_cast<size_t>(id)].load(std::memory_order_relaxed);
  }
  void note_own_token(TokenId id) const {
    own_tokens_[static_cast<size_t>(id)].store(true, std::memory_order_relaxed);
  }

  Vocabulary vocabulary_;
  BpeOptions options_;
  boost::unordered_flat_map<uint64_t, Merge> merges_;  // by pair_key of two ids
  mutable std::vector<std::atomic<bool>> own_tokens_;  // by id; any thread may set an element
  TextFinder whole_;
  boost::unordered_flat_set<TokenId> unused_;

  std::array<TokenId, 0x300> low_characters_{};  // entries of one character; -1: none
  boost::unordered_flat_map<char32_t, TokenId> high_characters_;
  std::array<TokenId, 256> bytes_{};  // "<0x00>" ...; -1: none

  // Two neighbouring characters can be in one token only if some merge has one at the end of its left part
  // and the other at the start of its right part. A long piece is split where this is impossible: the parts
  // do not affect each other, so each is encoded separately (and found in the cache), with the same result.
  bool may_cut_ = false;
  std::bitset<size_t{128} * 128> joints_low_;  // both below U+0080
  boost::unordered_flat_set<uint64_t> joints_high_;
};

struct RankedMerges {
  std::vector<BpeMerge> merges;
  std::vector<char32_t> extra_characters;  // for BpeOptions
};

/// For vocabularies that rank entries instead of pairs: every way to split an entry into two others (or
/// characters) is a merge with the entry's rank. `ranks`: by id; kNoRank: the entry is not the result of a
/// merge.
inline constexpr uint32_t kNoRank = UINT32_MAX;
RankedMerges merges_by_rank(const Vocabulary& vocabulary, std::span<const uint32_t> ranks);

}  // namespace quire::tokenize
