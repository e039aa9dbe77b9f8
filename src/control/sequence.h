#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "base/ids.h"
#include "base/rare_list.h"
#include "control/decision_log.h"
#include "control/kv/block_table.h"
#include "control/request.h"

namespace quire::control {

/// A sequence inside the scheduler: its tokens, and which of them have K/V in its blocks:
///
///     0            computed           computed + planned     total() + pending
///     |---- K/V ----|-- of open steps --|------ to do ---------|
///
/// A token is sampled when a step reaches the end; until the result of that step is there, the token is
/// pending. Preemption sets `computed` and `planned` back to 0 and keeps the tokens: recomputation is a
/// prefill of all of them.
struct alignas(64) Sequence {
  static constexpr uint32_t kNoRow = UINT32_MAX;
  // What every step reads, in one cache line.
  TokenList tokens;  // prompt, then output
  uint32_t prompt_length = 0;
  uint32_t longest = 0;  // prompt_length + spec.max_tokens; 0 counts as 1: it ends as if with a token
  uint32_t computed = 0;
  uint32_t planned = 0;  // tokens that steps in flight compute
  uint32_t pending = 0;  // tokens that steps in flight sample
  uint32_t preemptions = 0;
  SlotId slot = kNoSlot;
  uint32_t generation = 0;  // of its current or last slot

  BlockTable table;         // the second line
  uint64_t last_step = 0;   // the last plan in which it has a part
  SeqTerms spec;            // up to `salt` in the third line; `fork_of` in that of the next two
  uint64_t follows_in = 0;  // the last plan that passed over it because another computes its next block
  WaitReason waits_for = WaitReason::kNone;

  // The first row of its prompt that it lacks; its last token: only a pooled state; kNoRow: nothing.
  uint32_t next_row = kNoRow;
  uint32_t yields = 0;  // steps in flight that compute a chunk of a prompt that lacks something

  SlotId last_slot = kNoSlot;  // while it waits: its previous slot
  uint32_t passed = 0;         // by how many later arrivals
  uint64_t arrival = 0;
  std::optional<uint32_t> cached_tokens;  // prompt tokens found cached at the first admission

  // While a swapped-out sequence waits: the K/V of its first tokens in blocks of the host pool.
  RareList<BlockId> host;    // [group][row]; kNoBlock behind a group's window
  uint32_t swapped = 0;      // number of these tokens; 0: none
  uint32_t told_behind = 0;  // while it waits: how it compares with the first in line, as last reported
  std::optional<uint64_t> first_admitted;  // number of its first admission
  int64_t rank = 0;                        // the policy's rank at the last comparison

  uint32_t total() const { return static_cast<uint32_t>(tokens.size()); }  // known
  uint32_t generated() const { return total() - prompt_length; }
  /// Where its next step begins.
  uint32_t next() const { return computed + planned; }
  /// Tokens left to compute; 0 if steps in flight sample its last token, which is never computed.
  uint32_t remaining() const {
    const uint32_t expected = total() + pending;
    return expected == longest ? 0 : expected - next();
  }
  bool prompt_computed() const { return computed >= prompt_length; }
  bool awaits() const { return pending + yields > 0; }
  /// It lacks the mean over its prompt, which an executor adds up from the first token on.
  bool adds_up() const { return next_row != kNoRow && spec.wants.pooling == Pooling::kMean; }
  /// Tokens whose K/V it may share instead of computing them.
  uint32_t sharable() const { return adds_up() ? 0 : std::min(next_row, total() - 1); }
  /// Preempted so often that only protected sequences first admitted before it may preempt it again.
  bool is_protected() const { return preemptions >= 8; }
  /// Only its last token is left to compute, and that token was sampled.
  bool decoding() const { return next() >= prompt_length && remaining() == 1; }
};

}  // namespace quire::control
