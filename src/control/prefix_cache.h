#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "control/eviction.h"

namespace quire {

/// Index from token prefixes to the blocks that hold their K/V, whole blocks only.
///
/// A published block is found by its parent (the block before it), its tokens and its salt. All three are
/// compared, the hash only finds the candidates; so a match is exact by induction along the chain. This needs
/// a parent to stay as long as its children: whoever holds a block holds its parents (publish() says how),
/// and eviction takes the end of a chain first.
///
/// Knows blocks by number only; who holds them, BlockPool counts and tells. Not thread-safe.
/// After the block hashes of Kwon et al. 2023 (PagedAttention) and Zheng et al. 2024 (SGLang).
class PrefixCache {
 public:
  /// Of a block's tokens, keyed by the hash of its parent, at the root by the salt.
  using Hash = uint64_t (*)(std::span<const TokenId> tokens, uint64_t parent_hash);
  /// XXH3, 64 bits, `parent_hash` as its seed.
  static uint64_t xxh3(std::span<const TokenId> tokens, uint64_t parent_hash);

  PrefixCache(uint32_t num_blocks, uint32_t block_size, std::unique_ptr<EvictionPolicy> eviction,
              Hash hash = xxh3);

  uint32_t num_blocks() const { return static_cast<uint32_t>(entries_.size()); }
  uint32_t block_size() const { return block_size_; }

  /// Sets `hits` to the blocks of the longest cached prefix of `tokens`, in order; at most
  /// floor((length - 1) / block size), so that a token is left to compute. The caller retains them.
  void match(std::span<const TokenId> tokens, uint64_t salt, std::vector<BlockId>& hits) const;

  /// Makes a full, computed block known. `tokens` are its own, `parent` the published block before it, or
  /// kNoBlock. REQUIRES: `block` is held and not published. Returns the block that stands for these contents:
  /// `block`, or another that was published earlier, which the caller must then hold in its place (both hold
  /// the same K/V). So a sequence's published blocks are always one chain of the index.
  BlockId publish(BlockId block, BlockId parent, std::span<const TokenId> tokens, uint64_t salt);

  bool contains(BlockId block) const { return entries_[block].published; }
  bool is_idle(BlockId block) const { return entries_[block].idle; }

  // Called by BlockPool for published blocks.
  void use(BlockId block);   // one more holder
  void idle(BlockId block);  // the last holder let go
  /// Forgets one idle block and returns it, kNoBlock if none is idle.
  BlockId evict();
  uint32_t num_idle() const { return num_idle_; }

  /// Empty if the index is consistent, else what is not. O(blocks).
  std::string check_invariants() const;

 private:
  struct Entry {
    bool published = false;
    bool idle = false;
    uint64_t hash = 0;
    uint64_t salt = 0;
    uint32_t depth = 0;
    BlockId parent = kNoBlock;
    BlockId next_in_bucket = kNoBlock;
    BlockId first_child = kNoBlock;  // the last published
    BlockId next_sibling = kNoBlock;
    BlockId previous_sibling = kNoBlock;
  };

  std::span<const TokenId> tokens_of(BlockId block) const;
  BlockId find(uint64_t hash, BlockId parent, std::span<const TokenId> tokens, uint64_t salt) const;
  void remove(BlockId block);

  uint32_t block_size_;
  std::unique_ptr<EvictionPolicy> eviction_;
  Hash hash_;
  std::vector<Entry> entries_;    // by block
  std::vector<TokenId> tokens_;   // by block, block_size each
  std::vector<BlockId> buckets_;  // a power of two, first block of each chain
  uint32_t num_idle_ = 0;
};

}  // namespace quire
