#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "control/scheduler.h"
#include "record/key_set.h"
#include "record/run_state.h"
#include "record/seq_map.h"

namespace quire::record {

/// Tracks which prefix is in which block, to find out whether a later sequence would have hit an evicted
/// block. Only for runs with one full-attention K/V group, and not for blocks that were restored from a file.
class EvictionBook {
 public:
  explicit EvictionBook(const control::SchedulerConfig& config);

  /// To be called before `state` applies the event.
  void take(const RunEvent& event, const RunState& state);

  bool knows() const { return knows_; }
  /// The number of blocks that were evicted and needed again, by the index of the sequence that needed them.
  const std::map<size_t, uint64_t>& needed_by() const { return needed_by_; }

 private:
  struct Tracked {
    size_t index = 0;  // in the run
    uint64_t salt = 0;
    uint32_t computed = 0;
    bool running = false;
    size_t length = 0;                // tokens
    std::vector<TokenId> tail;        // the tokens after the last whole block
    std::vector<uint64_t> keys;       // one per whole block: a hash of all tokens up to its end, not 0
    std::vector<BlockId> blocks;      // its table
    std::optional<BlockId> stand_in;  // a block with the same contents replaces the next released one
  };

  void take(const control::Decision& decision);
  void take(const RunCommit& commit, const RunState& state);
  void take(const RunCached& cached);
  void append(Tracked& seq, std::span<const TokenId> tokens) const;
  void admit(Tracked& seq, uint32_t computed);
  void release(Tracked& seq, BlockId block);
  /// Records that the contents of its blocks [from, to) are computed.
  void publish(const Tracked& seq, size_t from, size_t to);

  bool knows_;
  uint32_t block_size_;
  size_t num_added_ = 0;
  std::optional<std::pair<SeqId, Tracked>> added_;  // until the decision kAdd
  SeqMap<std::unordered_map<SeqId, Tracked>> sequences_;
  BlockValues<uint64_t> contents_;  // key, by block; 0: not known
  KeySet evicted_;                  // keys of evicted blocks that have not been computed again
  bool resetting_ = false;          // the prefix cache is being reset: these are not evictions
  std::map<size_t, uint64_t> needed_by_;
};

}  // namespace quire::record
