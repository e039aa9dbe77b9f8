#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "control/scheduler.h"
#include "exec/executor.h"
#include "sim/cost_model.h"

namespace quire {

/// A place where a simulated sequence says a token.
struct SimPosition {
  uint64_t step = 0;  // StepPlan::step
  SlotId slot = kNoSlot;
  const SamplingParams& sampling;
  uint32_t prompt_length = 0;
  uint32_t position = 0;  // of the token, counted from the start of the prompt
};

struct SimTokens {
  uint32_t vocab_size = 32000;
  uint64_t seed = 0;
  /// What may be said, each in [0, vocab_size); empty: the whole vocabulary.
  std::vector<TokenId> sayable;
  /// Says the tokens in the place of all this: from a list, a trace, a recording.
  std::function<TokenId(const SimPosition&)> next;
};

/// An executor without a model. It computes nothing: a step takes the time that the cost model says
/// (StepResult::times.compute; nobody sleeps), and a token is a function of SimTokens::seed, the sequence's
/// sampling seed, its choice and the position. So a sequence says the same whatever runs beside it and after
/// a preemption. Of sampling parameters only these and num_logprobs are honoured: the token has rank 1 and
/// logprob -0.5, those listed below it are the next in the vocabulary, each 1 less.
///
/// A plan that contradicts itself or the former ones (slots, lengths of tables, numbers of blocks, positions,
/// tokens) throws Error. Which contents lie in which block it does not know;
/// tests/control/property/oracle_executor does. Synchronous; allocates only what StepResult is made of.
class SimExecutor final : public Executor {
 public:
  /// Blocks, groups and slots are those of `scheduler`. Throws Error if cost or tokens make no sense.
  SimExecutor(const SchedulerConfig& scheduler, const CostModel& cost, SimTokens tokens);

  Ticket submit(const StepPlan& plan) override;
  StepResult wait(Ticket ticket) override;

  const CostModel& cost() const { return cost_; }
  uint32_t slots_in_use() const { return slots_in_use_; }

 private:
  struct Slot {
    bool used = false;
    Ticket stepped = 0;  // the last plan in which it computes
    uint64_t key = 0;    // of the tokens it says
    uint32_t prompt_length = 0;
    uint32_t rows = 0;                 // blocks in the table of each K/V group
    std::optional<uint32_t> computed;  // unknown until its first step
    std::optional<TokenId> said;       // must be the token at `computed`
    SamplingParams sampling;
  };

  Slot& used_slot(SlotId slot, const char* part);
  void check_block(BlockId block, const char* part) const;
  void check_moves(const std::vector<BlockMove>& moves, const char* part) const;
  void remove(SlotId slot);
  void add(const NewSeq& seq);
  void update(const TableUpdate& update);
  /// Takes in the sequence's new blocks and tokens, and counts what it costs.
  void advance(const SeqStep& seq, Slot& slot);
  void say(uint64_t step, SlotId id, Slot& slot, SeqResult& result);

  uint32_t num_blocks_;
  uint32_t num_host_blocks_;
  uint32_t block_size_;
  uint32_t max_model_len_;
  std::vector<uint32_t> windows_;
  CostModel cost_;
  SimTokens tokens_;
  std::vector<Slot> slots_;
  uint32_t slots_in_use_ = 0;
  uint64_t prefill_tokens_ = 0;  // of the plan at hand
  uint64_t decoding_ = 0;
  StepResult result_;
  Ticket last_ticket_ = 0;
  bool pending_ = false;
};

}  // namespace quire
