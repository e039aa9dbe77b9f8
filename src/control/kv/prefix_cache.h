#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/token_list.h"
#include "control/eviction/eviction.h"

namespace quire::control {

/// A prefix in the index: the tokens of one block after those of another prefix.
using NodeId = uint32_t;
inline constexpr NodeId kNoNode = UINT32_MAX;

/// K/V that exists already: the first entries of a sequence's block tables, for each group in turn.
struct Prefix {
  uint32_t num_rows = 0;        // entries per group
  NodeId node = kNoNode;        // of its last whole block in the index; kNoNode if it has none there
  std::vector<BlockId> blocks;  // [group][row]; kNoBlock where the group's window has moved on
};

/// Index from token prefixes to the blocks that hold their K/V, whole blocks only: a tree whose nodes are the
/// tokens of one block after those of the parent, under one salt. A node has a block for each K/V group, as
/// far as these are cached.
///
/// A node is found by its parent, its tokens and its salt. All three are compared, and the hash only finds
/// the candidates; so a match is exact by induction along the chain. docs/control-plane.md says how long a
/// node is kept.
///
/// Knows blocks by number only; BlockPool counts their references and reports changes. Not thread-safe. After
/// the block hashes of Kwon et al. 2023 (PagedAttention) and Zheng et al. 2024 (SGLang).
class PrefixCache {
 public:
  /// Hash of a block's tokens, keyed by the hash of its parent, or by the salt at the root.
  using Hash = uint64_t (*)(std::span<const TokenId> tokens, uint64_t parent_hash);
  /// XXH3, 64 bits, `parent_hash` as its seed.
  static uint64_t xxh3(std::span<const TokenId> tokens, uint64_t parent_hash);

  /// `windows`: one per K/V group; 0: full attention (kv/windows.h).
  PrefixCache(uint32_t num_blocks, uint32_t block_size, std::unique_ptr<EvictionPolicy> eviction,
              Hash hash = xxh3, std::vector<uint32_t> windows = {0});

  uint32_t num_blocks() const { return static_cast<uint32_t>(places_.size()); }
  uint32_t block_size() const { return block_size_; }
  std::span<const uint32_t> windows() const { return windows_; }
  uint32_t num_groups() const { return static_cast<uint32_t>(windows_.size()); }

  /// Sets `found` to the longest prefix of `tokens` after which a sequence can continue: each group has all
  /// blocks that the next token reads (with full attention, all blocks of the prefix). At most floor((length
  /// - 1) / block size) rows, so that one token is left to compute. The caller retains the blocks and pins
  /// the node.
  void match(std::span<const TokenId> tokens, uint64_t salt, Prefix& found) const;

  /// The node of a full block whose tokens are `tokens` after those of `parent` (kNoNode at the root). A new
  /// node must get a block, a pin or a child before anything is evicted.
  NodeId publish(NodeId parent, std::span<const TokenId> tokens, uint64_t salt);
  /// Makes `block` the node's block of this group. REQUIRES: it is held, computed and not published. Returns
  /// the block that stands for these contents: `block`, or another block that was there before, which the
  /// caller must then hold instead (both have the same K/V).
  BlockId attach(NodeId node, uint32_t group, BlockId block);

  // A node has one pin per table whose published part ends with it. kNoNode is ignored.
  void pin(NodeId node);
  void unpin(NodeId node);

  /// The node that is `num_blocks` blocks from the root, on the path to `node`, or `node` itself.
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
  void use(BlockId block);   // one more table holds it
  void idle(BlockId block);  // the last table released it
  /// `more` waiting sequences (fewer if negative) than before have these tokens; for a policy that takes
  /// account of the queue. Reports the blocks that a hit on all of the tokens would use, cached or not.
  /// O(tokens).
  void want(const TokenList& tokens, uint64_t salt, int32_t more);
  BlockId evict();  // removes one idle block from the index and returns it; kNoBlock if none is idle
  uint32_t num_idle() const { return num_idle_; }

  /// Whether the node stands for exactly these tokens, a whole number of blocks. O(tokens).
  bool spells(NodeId node, std::span<const TokenId> tokens, uint64_t salt) const;
  std::string check_invariants() const;  // empty, or the first inconsistency; O(nodes + blocks)

 private:
  struct alignas(64) Node {  // one cache line
    bool used = false;
    uint64_t hash = 0;
    uint64_t salt = 0;
    uint32_t depth = 0;  // blocks before its own
    uint32_t pins = 0;
    NodeId parent = kNoNode;
    NodeId next_in_bucket = kNoNode;
    NodeId first_child = kNoNode;  // the one published last
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
  void erase_empty(NodeId node);
  std::string check_node(NodeId node) const;

  uint32_t block_size_;
  std::vector<uint32_t> windows_;
  std::unique_ptr<EvictionPolicy> eviction_;
  Hash hash_;
  std::vector<Node> nodes_;
  std::vector<TokenId> tokens_;     // by node, block_size each
  std::vector<BlockId> blocks_;     // by node, one per group; kNoBlock: not cached
  std::vector<NodeId> free_nodes_;  // a stack
  std::vector<NodeId> buckets_;     // a power of two, the first node of each
  std::vector<Place> places_;       // by block
  uint32_t num_idle_ = 0;
  uint64_t num_pins_ = 0;
  uint64_t num_wanted_ = 0;
};

}  // namespace quire::control
