#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "base/short_vector.h"

// The seam between deciding and doing. Plain data: an executor reads nothing else of `control`.
//
// Order of execution within a step: removed, added, moves_out, moves_in, copies, updates, then seqs in any
// order. A sequence has a block table for each K/V group: the layers of one sliding window, or a part of them
// (one group for most models). Position p lies in entry p / block size of each.
//
// Several steps may be open, that is submitted and not waited for. Then:
// - An executor carries plans out as if one after the other: nothing of plan N + 1 is visible to plan N. So
//   blocks, host blocks and slots that plan N uses may be given away in plan N + 1. An executor that overlaps
//   steps, copies or moves by itself orders them by itself. Whoever reads K/V from outside waits for all
//   steps.
// - A token that a step decodes may be one that an open step samples (kLateToken).
// - A result belongs to the sequence that had the slot in that generation, not to the slot. What comes for a
//   sequence that has ended is dropped. One that was preempted still takes the tokens that open steps sample
//   for it, and does not come in again before it has them.
// - Full blocks are published when the result of their step comes, and not if their sequence failed in it.
// - If a step fails as a whole, so do those after it (Scheduler::reset).
//
// A draft of k tokens that a model verifies will be a SeqStep of k late or known tokens that wants all their
// rows, and gives a list of tokens; an adapter will be a number in NewSeq.
namespace quire::control {

/// A sequence takes a slot; given once, until it is removed (a preempted sequence is removed and added anew).
struct NewSeq {
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // how often the slot was taken: more than before
  SamplingParams sampling;
  uint32_t prompt_length = 0;
  /// Blocks that hold its first tokens (prefix hit, fork, or once moves_in are done), in order; as many for
  /// each K/V group, one group after the other. kNoBlock where a group has moved its window on.
  std::vector<BlockId> blocks;
  /// All its tokens so far, only if the penalties need them; empty otherwise.
  std::vector<TokenId> history;
};

/// Copies all K/V of a block before the step computes (copy-on-write). In the order of the list.
struct BlockCopy {
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

/// Moves all K/V of a block to the host pool or back (swap); what was there is left behind. In moves_out no
/// block is written that moves_in reads.
struct BlockMove {
  BlockId device = kNoBlock;
  BlockId host = kNoBlock;  // in the host pool
  friend bool operator==(const BlockMove&, const BlockMove&) = default;
};

/// In the block table of `slot` and K/V group `group`, entry `index` is now `block`: the copy made for it, or
/// another block with the same contents that takes its place.
struct TableUpdate {
  SlotId slot = kNoSlot;
  uint32_t index = 0;
  BlockId block = kNoBlock;
  uint32_t group = 0;
  friend bool operator==(const TableUpdate&, const TableUpdate&) = default;
};

/// What is wanted of a sequence's logits.
enum class LogitRows : uint8_t {
  kNone,  // a prefill chunk that does not reach the last token
  kLast,  // sample one token after the last
};

/// In the place of a token that is not known yet: the one that the sequence samples in the last step before
/// that samples for it, which is open.
inline constexpr TokenId kLateToken = -1;

/// Tokens [first_position, first_position + tokens.size()) of a sequence are computed in this step.
struct SeqStep {
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // that of its NewSeq
  uint32_t first_position = 0;
  LogitRows rows = LogitRows::kNone;
  ShortVector<TokenId, 2> tokens;  // never empty; kLateToken alone, or none of it
  /// Appended to its block tables before it computes: as many for each K/V group, one after the other.
  /// Entries that no token to come reads are given back without a word: nobody reads them.
  ShortVector<BlockId, 2> new_blocks;

  bool is_late() const { return tokens.front() == kLateToken; }
};

struct StepPlan {
  uint64_t step = 0;
  std::vector<SlotId> removed;
  std::vector<NewSeq> added;
  std::vector<BlockMove> moves_out;
  std::vector<BlockMove> moves_in;
  std::vector<BlockCopy> copies;
  std::vector<TableUpdate> updates;  // applied with the copies
  std::vector<SeqStep> seqs;

  /// Nothing to compute; then all lists are empty, and neither submit nor commit is needed.
  bool empty() const { return seqs.empty(); }
};

/// What one SeqStep gave; same order as StepPlan::seqs.
struct SeqResult {
  SeqResult() {}  // NOLINT(modernize-use-equals-default): without it, all bytes would be set to 0 before
  ShortVector<SampledToken, 1> tokens;  // one if LogitRows::kLast was asked for, else none
  /// The sequence failed in the executor (a NaN in its logits, say): it ends with FinishReason::kError.
  std::string error;
};

/// Nanoseconds spent in the phases of a step, for the trace; all 0 where an executor does not measure.
struct PhaseTimes {
  Nanos compute = 0;
  Nanos sample = 0;
};

struct StepResult {
  std::vector<SeqResult> seqs;
  PhaseTimes times;
};

}  // namespace quire::control
