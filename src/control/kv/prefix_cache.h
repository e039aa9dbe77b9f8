#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "control/eviction/eviction.h"

namespace quire::control {

/// A prefix that the index knows: a whole number of blocks' tokens after another prefix.
using NodeId = uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

/// K/V that is there already: the first entries of a sequence's block table, for each group in turn.
struct Prefix {
  uint32_t num_rows = 0;        // entries of each group
  NodeId node = kNoNode;        // the whole blocks of it in the index; kNoNode if it knows none
  std::vector<BlockId> blocks;  // [group][row]; kNoBlock where the group's window has moved on
};

/// Index from token prefixes to the blocks that hold their K/V, whole blocks only: a tree whose nodes are the
/// tokens of one block after those of the parent, under one salt. A node has a block for each K/V group, as
/// far as it is cached.
///
/// A node is found by its parent, its tokens and its salt. All three are compared, the hash only finds the
/// candidates; so a match is exact by induction along the chain. docs/control-plane.md: what keeps a node.
///
/// Knows blocks by number only; who holds them, BlockPool counts and tells. Not thread-safe.
/// After the block hashes of Kwon et al. 2023 (PagedAttention) and Zheng et al. 2024 (SGLang).
class PrefixCache {
 public:
  /// Of a block's tokens, keyed by the hash of its parent, at the root by the salt.
  using Hash = uint64_t (*)(std::span<const TokenId> tokens, uint64_t parent_hash);
  /// XXH3, 64 bits, `parent_hash` as its seed.
  static uint64_t xxh3(std::span<const TokenId> tokens, uint64_t parent_hash);

  /// `windows`: one a K/V group, 0 sees all (kv_windows.h).
  PrefixCache(uint32_t num_blocks, uint32_t block_size, std::unique_ptr<EvictionPolicy> eviction,
              Hash hash = xxh3, std::vector<uint32_t> windows = {0});

  uint32_t num_blocks() const { return static_cast<uint32_t>(places_.size()); }
  uint32_t block_size() const { return block_size_; }
  std::span<const uint32_t> windows() const { return windows_; }
  uint32_t num_groups() const { return static_cast<uint32_t>(windows_.size()); }

  /// Sets `found` to the longest prefix of `tokens` from which a sequence can go on: each group has all
  /// blocks that the next token reads, so all of them where it sees all. At most floor((length - 1) / block
  /// size) blocks, so that a token is left to compute. The caller retains the blocks and pins the node.
  void match(std::span<const TokenId> tokens, uint64_t salt, Prefix& found) const;

  /// The node of a full block whose tokens are `tokens` after those of `parent` (kNoNode at the root). A new
  /// one must get a block, a pin or a child before anything is evicted.
  NodeId publish(NodeId parent, std::span<const TokenId> tokens, uint64_t salt);
  /// Makes `block` the one of the node's group. REQUIRES: it is held, computed and not published. Returns the
  /// block that stands for these contents: `block`, or another that was there before, which the caller must
  /// then hold in its place (both hold the same K/V).
  BlockId attach(NodeId node, uint32_t group, BlockId block);

  // One pin for every table that ends, as far as it is published, with this node. Nothing for kNoNode.
  void pin(NodeId node);
  void unpin(NodeId node);

  /// The node `num_blocks` blocks from the root, on the way to `node` or itself.
  NodeId ancestor(NodeId node, uint32_t num_blocks) const;
  BlockId block(NodeId node, uint32_t group) const { return blocks_[size_t{node} * num_groups() + group]; }
  uint32_t pins(NodeId node) const { return nodes_[node].pins; }
  uint64_t num_pins() const { return num_pins_; }
  uint64_t num_wanted() const { return num_wanted_; }  // rows, over all calls of want()
  uint64_t salt(NodeId node) const { return nodes_[node].salt; }
  NodeId parent(NodeId node) const { return nodes_[node].parent; }
  std::span<const TokenId> tokens_of(NodeId node) const;
  std::vector<NodeId> nodes() const;  // parents before their children
  uint32_t num_nodes() const { return static_cast<uint32_t>(nodes_.size() - free_nodes_.size()); }

  bool contains(BlockId block) const { return places_[block].node != kNoNode; }
  bool is_idle(BlockId block) const { return places_[block].idle; }

  // Called by BlockPool for published blocks.
  void use(BlockId block);   // one more holder
  void idle(BlockId block);  // the last holder let go
  /// `more` (or, negative, fewer) waiting sequences than before have these tokens, for a policy that looks at
  /// the queue. Names the blocks that a hit on all of them would use, cached or not. O(tokens).
  void want(std::span<const TokenId> tokens, uint64_t salt, int32_t more);
  BlockId evict();  // forgets one idle block and returns it, kNoBlock if none is idle
  uint32_t num_idle() const { return num_idle_; }

  /// The node stands for exactly these tokens, a whole number of blocks. O(tokens).
  bool spells(NodeId node, std::span<const TokenId> tokens, uint64_t salt) const;
  std::string check_invariants() const;  // empty if consistent, else what is not; O(nodes + blocks)

 private:
  struct alignas(64) Node {  // a line of the processor's cache
    bool used = false;
    uint64_t hash = 0;
    uint64_t salt = 0;
    uint32_t depth = 0;  // blocks before its own
    uint32_t pins = 0;
    NodeId parent = kNoNode;
    NodeId next_in_bucket = kNoNode;
    NodeId first_child = kNoNode;  // the last published
    NodeId next_sibling = kNoNode;
    NodeId previous_sibling = kNoNode;
  };
  struct Place {
    NodeId node = kNoNode;  // kNoNode: not published
    uint32_t group = 0;
    bool idle = false;
  };

  NodeId find(uint64_t hash, NodeId parent, std::span<const TokenId> tokens, uint64_t salt) const;
  NodeId& bucket(uint64_t hash) { return buckets_[hash & (buckets_.size() - 1)]; }
  NodeId make_node();
  void widen_buckets();
  void forget(BlockId block);
  void erase_empty(NodeId node);
  void erase(NodeId node);
  std::string check_node(NodeId node) const;

  uint32_t block_size_;
  std::vector<uint32_t> windows_;
  std::unique_ptr<EvictionPolicy> eviction_;
  Hash hash_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;     // by node, block_size each
  std::vector<BlockId> blocks_;     // by node, one a group; kNoBlock: not cached
  std::vector<NodeId> free_nodes_;  // a stack
  std::vector<NodeId> buckets_;     // a power of two, the first node of each
  std::vector<Place> places_;       // by block
  uint32_t num_idle_ = 0;
  uint64_t num_pins_ = 0;
  uint64_t num_wanted_ = 0;
};

}  // namespace quire::control
