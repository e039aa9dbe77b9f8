#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/ids.h"
#include "control/decision_log.h"
#include "control/kv/block_table.h"
#include "control/request.h"

namespace quire {

/// A sequence inside the scheduler. Its tokens, and what of them has K/V in its blocks:
///
///     0            computed           computed + planned     tokens.size()
///     |---- K/V ----|-- this step's ----|------ to do ---------|
///
/// A token is sampled when `computed` reaches the end. Preemption sets `computed` back to 0 and keeps the
/// tokens: recomputation is a prefill of all of them.
struct Sequence {
  // What every step looks at, together.
  std::vector<TokenId> tokens;  // prompt, then output
  uint32_t prompt_length = 0;
  uint32_t computed = 0;
  uint32_t planned = 0;  // tokens of the step under way; 0 between steps
  uint32_t preemptions = 0;
  SlotId slot = kNoSlot;
  BlockTable table;
  SeqSpec spec;  // its prompt moved to `tokens`

  uint64_t arrival = 0;
  std::optional<uint32_t> cached_tokens;  // of the prompt, found when first admitted

  // While it waits, of a sequence that was swapped out: K/V of its first tokens in blocks of the host pool.
  uint32_t swapped = 0;                    // so many tokens; 0: none
  std::vector<BlockId> host;               // [group][row]; kNoBlock behind a group's window
  uint32_t passed = 0;                     // by so many that arrived later
  std::optional<uint64_t> first_admitted;  // number of its first admission
  WaitReason waits_for = WaitReason::kNone;

  uint32_t total() const { return static_cast<uint32_t>(tokens.size()); }
  uint32_t generated() const { return total() - prompt_length; }
  uint32_t remaining() const { return total() - computed; }
  bool prompt_computed() const { return computed >= prompt_length; }
  /// Preempted so often that only those protected before it may do it again.
  bool is_protected() const { return preemptions >= 8; }
  bool decoding() const { return prompt_computed() && remaining() == 1; }  // of its last token, a sampled one
};

}  // namespace quire
