#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/ids.h"
#include "control/decision_log.h"
#include "control/kv/prefix_cache.h"

namespace quire::control {

/// A fixed number of K/V blocks and the number of block tables that hold each. Any block serves any K/V
/// group. A block is free, referenced (held by one or more block tables), or cached (held by none, but
/// published in the prefix index). Running out of blocks is a value (kNoBlock). Not thread-safe. Every call
/// is O(1) except the last two.
class BlockPool {
 public:
  explicit BlockPool(PrefixCache cache);

  uint32_t size() const { return static_cast<uint32_t>(references_.size()); }
  uint32_t block_size() const { return cache_.block_size(); }
  uint32_t num_free() const { return static_cast<uint32_t>(free_.size()); }
  uint32_t num_cached() const { return cache_.num_idle(); }
  uint32_t num_referenced() const { return size() - available(); }
  uint32_t num_shared() const { return num_shared_; }  // held by two or more tables
  uint64_t num_saved() const { return num_saved_; }    // sum of (references - 1): what sharing saves
  uint64_t num_evictions() const { return num_evictions_; }
  uint32_t available() const { return num_free() + num_cached(); }  // what allocate() can still hand out

  /// Returns a block with one reference: the most recently freed one; if none is free, the one that the
  /// prefix cache evicts; kNoBlock if all are referenced.
  BlockId allocate();
  void retain(BlockId block);  // one more reference. REQUIRES: referenced or cached
  /// One reference less. Without references, the block is cached if it is published, else free.
  void release(BlockId block);

  uint32_t references(BlockId block) const { return references_[block]; }
  /// Held by one table and not published: may be written to.
  bool writable(BlockId block) const { return references_[block] == 1 && !cache_.contains(block); }

  const PrefixCache& cache() const { return cache_; }
  DecisionLog& log() { return log_; }
  NodeId publish(NodeId parent, std::span<const TokenId> tokens, uint64_t salt) {
    return cache_.publish(parent, tokens, salt);
  }
  /// PrefixCache::attach. If another block stands for these contents, releases `block` and retains the other
  /// one instead. Returns the block that is now held.
  BlockId attach(NodeId node, uint32_t group, BlockId block);
  void want(const TokenList& tokens, uint64_t salt, int32_t more) { cache_.want(tokens, salt, more); }
  void pin(NodeId node) { cache_.pin(node); }
  void unpin(NodeId node) { cache_.unpin(node); }

  void drop_cached();  // all cached blocks become free

  std::string check_invariants() const;  // empty if counts and lists agree, else the first that does not

 private:
  PrefixCache cache_;
  DecisionLog log_;
  std::vector<uint32_t> references_;  // by block
  std::vector<BlockId> free_;         // a stack
  uint32_t num_shared_ = 0;
  uint64_t num_saved_ = 0;
  uint64_t num_evictions_ = 0;
};

}  // namespace quire::control
