#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/sim/synthetic_kv.h"
#include "backend/slot_table.h"
#include "base/ids.h"
#include "base/sampling_params.h"
#include "control/step.h"

namespace quire::backend::sim {

/// Makes plans bring the tokens of a sequence with these parameters when it gets a slot, as KvCheck needs
/// them: a penalty needs them, and the simulated device, which does not weigh tokens, uses it for nothing.
inline void tell_history(SamplingParams& sampling) {
  if (!sampling.needs_history()) sampling.presence_penalty = 1;
}

/// Checks that plans leave each sequence's K/V where its block tables say: every step writes synthetic K/V
/// for each token that it computes, and then reads back, through the tables, all that its sequences see. It
/// finds blocks that are given out twice, prefix hits on other tokens, copies and moves that are missing or
/// go to other blocks, and entries of tables that are wrong; what it does not know are salts, so a hit across
/// them stays unseen. Takes time in proportion to the contexts. Not thread-safe.
class KvCheck {
 public:
  struct Limits {
    uint32_t num_slots = 0;
    uint32_t num_blocks = 0;
    uint32_t num_host_blocks = 0;
    uint32_t block_size = 0;
    std::vector<uint32_t> windows = {0};  // one per K/V group; 0: full attention
  };
  /// Throws Error naming --check-kv if the K/V would take more than kMostBytes.
  explicit KvCheck(Limits limits);

  static constexpr uint64_t kMostBytes = uint64_t{4} << 30;

  // For each plan, in this order. All throw Error "K/V check: step N: ..." if something is not where it must
  // be, with sequence, position, block, what was expected and what was found.

  /// Slots, moves and copies. A sequence whose first tokens are already in blocks must bring its history.
  void begin(const control::StepPlan& plan);
  /// Writes the tokens of one of its sequences; `slots`: after SlotTable::advance.
  void write(const control::SeqStep& seq, std::span<const TokenId> tokens, const SlotTable& slots);
  /// Reads back what all sequences of the plan see.
  void read_back(const control::StepPlan& plan, const SlotTable& slots);

 private:
  struct Sequence {
    uint64_t name = 0;  // SamplingParams::seed
    uint32_t choice = 0;
    uint32_t generation = 0;
    std::vector<uint64_t> contents;  // of its tokens, as far as they are known
    uint32_t written = 0;            // up to this position; of the tokens before, others wrote them
  };

  [[noreturn]] void fail(SlotId slot, const std::string& what) const;
  void read_group(SlotId slot, uint32_t group, uint32_t first, const std::vector<BlockId>& table);

  const Limits limits_;
  SyntheticKv kv_;
  std::vector<Sequence> sequences_;  // by slot
  uint64_t step_ = 0;
};

}  // namespace quire::backend::sim
