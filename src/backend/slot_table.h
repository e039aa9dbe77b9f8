#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "control/step.h"

namespace quire::backend {

/// The state that every executor keeps for the sequences in its slots: their block tables, how far they are
/// computed, and the last token that each sampled. It checks that a plan is consistent with itself and with
/// the plans before it. An inconsistent plan is a bug of the caller: the call throws Error ("step plan: PART:
/// WHAT"), and the table must not be used afterwards. It holds no K/V and knows no device. Not thread-safe.
class SlotTable {
 public:
  struct Limits {
    uint32_t num_slots = 0;
    uint32_t num_blocks = 0;
    uint32_t num_host_blocks = 0;
    uint32_t block_size = 0;
    std::vector<uint32_t> windows = {0};  // one per K/V group; 0: full attention
    uint32_t max_positions = 0;           // the longest sequence, in tokens
    uint32_t vocab_size = 0;
  };
  explicit SlotTable(Limits limits);

  /// Applies what a plan changes before its sequences compute: slots, and entries of block tables. Checks
  /// moves and copies; the executor that has the K/V carries them out.
  void apply(const control::StepPlan& plan);

  /// Applies one of the plan's sequences, after apply(): its new blocks, and that its tokens are computed.
  /// Returns the tokens, with a late token replaced by the value that was passed to sampled(); valid until
  /// the next call. Empty if the sequence failed in the step that should have sampled the late token: there
  /// is nothing to compute, and the result is dropped.
  std::span<const TokenId> advance(const control::SeqStep& seq);

  /// Records the token that a sequence sampled after all its computed tokens. Not to be called for a sequence
  /// that failed.
  void sampled(SlotId slot, TokenId token) { slots_[slot].sampled = token; }

  /// The block tables by K/V group, all of the same length. An entry behind the group's window may be
  /// kNoBlock.
  const std::vector<std::vector<BlockId>>& tables(SlotId slot) const { return slots_[slot].tables; }
  /// Tokens that have K/V once everything applied so far has been carried out. REQUIRES: advance() was called
  /// for the slot.
  uint32_t computed(SlotId slot) const { return slots_[slot].computed; }
  uint32_t prompt_length(SlotId slot) const { return slots_[slot].prompt_length; }
  /// What plans may ask for of the slot's prompt.
  const PromptWants& wants(SlotId slot) const { return wants_[slot]; }
  uint32_t slots_in_use() const { return in_use_; }

 private:
  static constexpr uint32_t kUnknown = UINT32_MAX;
  struct alignas(64) Slot {  // a cache line
    bool used = false;
    uint32_t generation = 0;
    uint64_t stepped = 0;  // the last plan in which it computes, counted as in plans_
    uint32_t prompt_length = 0;
    uint32_t rows = 0;                         // blocks per group
    uint32_t computed = kUnknown;              // until its first step
    bool samples = false;                      // its last step samples the token at `computed`
    TokenId sampled = control::kLateToken;     // that token, if it is known
    std::vector<std::vector<BlockId>> tables;  // by K/V group
  };

  Slot& used_slot(SlotId slot, const char* part);
  void check_block(BlockId block, const char* part) const;
  void check_moves(const std::vector<control::BlockMove>& moves, const char* part) const;
  void check_token(SlotId slot, TokenId token, const char* part) const;
  [[noreturn, gnu::noinline]] void refuse_start(const control::SeqStep& seq, const Slot& slot) const;
  [[noreturn, gnu::noinline]] void refuse_length(const control::SeqStep& seq, const Slot& slot) const;
  void check_sampling(const control::NewSeq& seq) const;
  void check_prompt(const control::StepPlan& plan, const control::PromptStep& part, uint32_t first_seq);
  void add(const control::NewSeq& seq);
  void update(const control::TableUpdate& update);
  void append(Slot& slot, std::span<const BlockId> blocks, const char* part, bool may_lack);

  const Limits limits_;
  std::vector<Slot> slots_;
  std::vector<PromptWants> wants_;  // by slot; apart, as few steps need them
  uint32_t in_use_ = 0;
  uint64_t plans_ = 0;
  TokenId late_ = 0;  // what advance() returns for a late token
};

}  // namespace quire::backend
