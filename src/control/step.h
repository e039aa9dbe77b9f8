#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/prompt_wants.h"
#include "base/sampling_params.h"
#include "base/short_vector.h"

// The seam between decisions and execution. Plain data: an executor reads nothing else of `control`.
//
// Order of execution within a step: removed, added, moves_out, moves_in, copies, updates, then seqs in any
// order. A sequence has a block table for each K/V group: the layers of one sliding window, or a part of them
// (most models have one group). Position p is in entry p / block size of each table.
//
// Several steps may be in flight, that is, submitted and not waited for. Then:
// - An executor carries out plans as if one after the other: nothing of plan N + 1 is visible to plan N. So
//   plan N + 1 may reuse blocks, host blocks and slots that plan N uses. An executor that overlaps steps,
//   copies or moves must order them itself. Code that reads K/V from outside must first wait for all steps.
// - A token that a step computes may be one that a step in flight samples (kLateToken).
// - A result belongs to the sequence that had the slot in that generation, not to the slot. A result for a
//   sequence that has ended is dropped. A preempted sequence still takes the tokens that steps in flight
//   sample for it, and what they yield of its prompt, and is not admitted again before it has that.
// - Full blocks are published when the result of their step arrives, but not if their sequence failed in that
//   step.
// - Rows of a sequence with a mask source (SamplingParams::mask) are late: they are sampled once there are
//   masks, which depend on the tokens of all steps before. The step gets them (Executor::provide) when those
//   steps have been waited for, and before another step is submitted.
// - If a step fails as a whole, so do the steps after it (Scheduler::reset).
//
// Not built yet: drafts to verify (steps of k tokens that ask for the logits of all), adapters (in NewSeq).
namespace quire::control {

/// A sequence takes a slot. Sent once, until the slot is removed (a preempted sequence is removed, and added
/// again later).
struct NewSeq {
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // how often the slot was taken: larger than before
  SamplingParams sampling;
  PromptWants wants;  // what StepPlan::prompts may ask for
  uint32_t prompt_length = 0;
  /// Blocks that hold its first tokens (by a prefix hit, a fork, or after moves_in), in order; the same
  /// number for each K/V group, one group after the other. kNoBlock behind a group's window.
  std::vector<BlockId> blocks;
  /// All its tokens so far if sampling.needs_history(); otherwise empty.
  std::vector<TokenId> history;
};

/// Copies all K/V of a block before the step computes (copy-on-write), in the order of the list.
struct BlockCopy {
  BlockId from = kNoBlock;
  BlockId to = kNoBlock;
  friend bool operator==(const BlockCopy&, const BlockCopy&) = default;
};

/// Moves all K/V of a block to the host pool or back (swap); the source keeps its contents. moves_out writes
/// no host block that moves_in reads.
struct BlockMove {
  BlockId device = kNoBlock;
  BlockId host = kNoBlock;  // in the host pool
};

/// In the block table of `slot` and K/V group `group`, entry `index` is now `block`: a copy made for this
/// sequence, or another block with the same contents.
struct TableUpdate {
  SlotId slot = kNoSlot;
  uint32_t index = 0;
  BlockId block = kNoBlock;
  uint32_t group = 0;
  friend bool operator==(const TableUpdate&, const TableUpdate&) = default;
};

/// Which logits a sequence needs.
enum class LogitRows : uint8_t {
  kNone,  // none: a prefill chunk that does not reach the last token
  kLast,  // of the last token: sample the next one
  kEnd,   // none: the sequence wants no token and ends with this step
};

/// Stands for a late token: the one that the sequence samples in its last sampling step, which is in flight.
inline constexpr TokenId kLateToken = -1;

/// Tokens [first_position, first_position + tokens.size()) of a sequence are computed in this step.
struct SeqStep {
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // that of its NewSeq
  uint32_t first_position = 0;
  LogitRows rows = LogitRows::kNone;
  ShortVector<TokenId, 2> tokens;  // never empty; either one kLateToken or only known tokens
  /// Appended to its block tables before it computes: so many for each K/V group, one group after the other.
  /// Blocks that no future token reads are released without notice; their entries are no longer read.
  ShortVector<BlockId, 2> new_blocks;

  bool is_late() const { return tokens.front() == kLateToken; }
};

/// What a step yields of a prompt: rows [first_row, end_row), maybe none, and with the last chunk the pooled
/// hidden state, if NewSeq::wants has one. There is one for each chunk of a prompt that lacks something.
struct PromptStep {
  uint32_t seq = 0;  // index in StepPlan::seqs; they rise
  uint32_t first_row = 0;
  uint32_t end_row = 0;
  TokenId next = 0;   // the prompt's token at end_row
  bool last = false;  // the chunk ends the prompt
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
  std::vector<PromptStep> prompts;

  /// Nothing to compute: all lists are empty, and the plan is neither submitted nor committed.
  bool empty() const { return seqs.empty(); }
};

/// The result of one SeqStep, in the order of StepPlan::seqs.
struct SeqResult {
  SeqResult() {}  // NOLINT(modernize-use-equals-default): without it, all bytes would first be set to 0
  std::optional<SampledToken> token;  // if LogitRows::kLast was asked for, and only then
  /// The sequence failed in the executor (a NaN in its logits, say): it ends with FinishReason::kError.
  std::string error;
  bool refused = false;  // with `error`: the request is at fault, as no token is what it asks for
};

/// Nanoseconds spent in the phases of a step, for the trace; all 0 if the executor does not measure them.
struct PhaseTimes {
  Nanos compute = 0;
  Nanos sample = 0;
};

struct StepResult {
  std::vector<SeqResult> seqs;
  std::vector<PromptYield> prompts;  // as StepPlan::prompts; of a sequence that failed, anything
  PhaseTimes times;
};

}  // namespace quire::control
