#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/ids.h"
#include "exec/executor.h"

namespace quire::test {

/// The token after `tokens` (prompt and output so far; the first `prompt_length` are the prompt). A negative
/// value makes the sequence fail.
using NextToken = std::function<TokenId(std::span<const TokenId> tokens, uint32_t prompt_length,
                                        const SamplingParams& sampling)>;

/// A hash of all the tokens, of seed and choice too unless greedy.
NextToken hashed_continuation(uint32_t vocab_size);

/// `script` over and over, whatever the prompt.
NextToken scripted_continuation(std::vector<TokenId> script);

struct FakeExecutorConfig {
  uint32_t num_blocks = 256;
  uint32_t block_size = 16;
  uint32_t max_slots = 64;
  uint32_t num_host_blocks = 0;
  uint32_t vocab_size = 256;
  NextToken next;   // empty: hashed_continuation(vocab_size)
  Nanos delay = 0;  // of every step that computes
};

/// An executor without a model: its "K/V" is the token written at each place of each block, and what it
/// samples is a function of the tokens read back through the block table. So a plan that shares, copies or
/// recycles blocks wrongly changes the text or is refused: every inconsistency of a plan throws Error.
/// Logprobs, when asked for: the sampled token has rank 1, logprob -0.5, and the others of `top` are the ids
/// after it (modulo the vocabulary) at -1.5, -2.5, ...
/// Synchronous: submit computes, wait returns. One caller, except set_delay and steps.
class FakeExecutor final : public Executor {
 public:
  explicit FakeExecutor(FakeExecutorConfig config);

  Ticket submit(const StepPlan& plan) override;
  StepResult wait(Ticket ticket) override;

  void set_delay(Nanos delay) { delay_ = delay; }
  /// How many plans have been carried out.
  uint64_t steps() const { return steps_; }
  uint32_t slots_in_use() const;

 private:
  struct Slot {
    bool used = false;
    SamplingParams sampling;
    uint32_t prompt_length = 0;
    std::vector<BlockId> table;
    std::vector<TokenId> history;      // as given, then what is computed; only with penalties
    std::optional<uint32_t> computed;  // unknown until the first step
    std::optional<TokenId> sampled;    // must be the token at position `computed`
    std::vector<TokenId> tokens;       // scratch: read back through the table
  };

  Slot& slot_at(SlotId slot, const char* what);
  void hold(BlockId block);
  void release(BlockId block);
  void remove(SlotId slot);
  void add(const NewSeq& seq);
  void copy(const BlockCopy& copy);
  void move(const BlockMove& move, bool out);
  void update(const TableUpdate& update);
  SeqResult step(const SeqStep& seq);
  void write(const SeqStep& seq, Slot& slot);
  SeqResult sample(Slot& slot);

  FakeExecutorConfig config_;
  std::atomic<Nanos> delay_;
  std::atomic<uint64_t> steps_ = 0;
  std::vector<Slot> slots_;
  std::vector<uint32_t> holders_;  // per block: tables that hold it
  std::vector<TokenId> cells_;     // [block][place], -1: nothing
  std::vector<TokenId> host_;      // the same, of the host pool
  StepResult result_;
  std::optional<Ticket> pending_;
};

}  // namespace quire::test
