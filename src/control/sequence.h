#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "control/decision_log.h"
#include "control/kv/block_table.h"
#include "control/request.h"

namespace quire::control {

/// A sequence inside the scheduler. Its tokens, and what of them has K/V in its blocks:
///
///     0            computed           computed + planned     total() + pending
///     |---- K/V ----|-- of open steps --|------ to do ---------|
///
/// A token is sampled when a step reaches the end; until that step's result is there, it is pending.
/// Preemption sets `computed` and `planned` back to 0 and keeps the tokens: recomputation is a prefill of all
/// of them.
struct Sequence {
  // What every step looks at, in one line of the processor's cache.
  std::vector<TokenId> tokens;  // prompt, then output
  uint32_t prompt_length = 0;
  uint32_t longest = 0;  // prompt_length + spec.max_tokens
  uint32_t computed = 0;
  uint32_t planned = 0;  // tokens that open steps compute
  uint32_t pending = 0;  // tokens that open steps sample
  uint32_t preemptions = 0;
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // of the slot that it has or had last
  uint64_t last_step = 0;   // the last plan that it has a part in

  BlockTable table;
  SeqSpec spec;  // its prompt moved to `tokens`

  SlotId last_slot = kNoSlot;  // while it waits: that it had
  uint64_t arrival = 0;
  std::optional<uint32_t> cached_tokens;  // of the prompt, found when first admitted

  // While it waits, of a sequence that was swapped out: K/V of its first tokens in blocks of the host pool.
  uint32_t swapped = 0;                    // so many tokens; 0: none
  std::vector<BlockId> host;               // [group][row]; kNoBlock behind a group's window
  uint32_t passed = 0;                     // by so many that arrived later
  std::optional<uint64_t> first_admitted;  // number of its first admission
  WaitReason waits_for = WaitReason::kNone;
  int64_t rank = 0;          // by the policy, when it was last compared
  uint32_t told_behind = 0;  // while it waits: how it compares with the first in line, by the last cause

  uint32_t total() const { return static_cast<uint32_t>(tokens.size()); }  // known
  uint32_t generated() const { return total() - prompt_length; }
  /// Where its next step begins.
  uint32_t next() const { return computed + planned; }
  /// Tokens left to compute. None if open steps sample its last one: nobody computes that.
  uint32_t remaining() const {
    const uint32_t expected = total() + pending;
    return expected == longest ? 0 : expected - next();
  }
  bool prompt_computed() const { return computed >= prompt_length; }
  /// Preempted so often that only those protected before it may do it again.
  bool is_protected() const { return preemptions >= 8; }
  /// Only its last token is left, and that one is sampled.
  bool decoding() const { return next() >= prompt_length && remaining() == 1; }
};

}  // namespace quire::control
