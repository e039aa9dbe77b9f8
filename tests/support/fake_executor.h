#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "backend/executor.h"
#include "backend/open_results.h"
#include "backend/slot_table.h"
#include "base/ids.h"

namespace quire::test {

/// The token after `tokens` (prompt and output so far; the first `prompt_length` are the prompt). A negative
/// value makes the sequence fail; -2 by the request's own fault.
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
  uint32_t depth = 1;
};

/// An executor without a model: its "K/V" is the token written at each place of each block, and what it
/// samples is a function of the tokens read back through the block table. So a plan that shares, copies or
/// recycles blocks wrongly changes the text or is refused: every inconsistency of a plan throws Error.
/// Logprobs, when asked for: the sampled token has rank 1, logprob -0.5, and the others of `top` are the ids
/// after it (modulo the vocabulary) at -1.5, -2.5, ...
/// Of a late row it samples the first token from there on that the mask allows. Rows of a prompt have the
/// same figures; its pooled state is its last token, or the mean of its tokens. Synchronous: submit computes,
/// wait returns. One caller, except set_delay and steps.
class FakeExecutor final : public backend::Executor {
 public:
  explicit FakeExecutor(FakeExecutorConfig config);

  uint32_t depth() const override { return config_.depth; }
  backend::Ticket submit(const control::StepPlan& plan) override;
  void provide(backend::Ticket ticket, backend::TokenMasks& masks) override;
  control::StepResult wait(backend::Ticket ticket) override;

  void set_delay(Nanos delay) { delay_ = delay; }
  /// How many plans have been carried out.
  uint64_t steps() const { return steps_; }
  uint32_t slots_in_use() const { return slots_.slots_in_use(); }

 private:
  struct Slot {
    SamplingParams sampling;
    std::vector<TokenId> history;  // as given, then what is computed; only with penalties
    std::vector<TokenId> tokens;   // scratch: read back through the table
    uint64_t sum = 0;              // of the prompt's tokens in chunks of which something was wanted
  };
  struct Work {
    const control::SeqStep* step;
    std::vector<TokenId> tokens;
  };

  void add(const control::NewSeq& seq);
  void copy(const control::BlockCopy& copy);
  void move(const control::BlockMove& move, bool out);
  control::SeqResult step(const Work& work, size_t seq);  // its index in StepPlan::seqs
  void write(const Work& work);
  /// `mask`: empty if any token may come.
  control::SeqResult sample(SlotId slot_id, std::span<const uint32_t> mask);
  PromptYield yield(const Work& work, const control::PromptStep& part);

  FakeExecutorConfig config_;
  std::atomic<Nanos> delay_;
  std::atomic<uint64_t> steps_ = 0;
  backend::SlotTable slots_;
  std::vector<Slot> states_;                          // by slot
  std::vector<uint32_t> holders_;                     // per block: tables that hold it
  std::vector<TokenId> cells_;                        // [block][place], -1: nothing
  std::vector<TokenId> host_;                         // the same, of the host pool
  std::vector<std::pair<size_t, SlotId>> late_rows_;  // of the newest plan: index in StepPlan::seqs, slot
  backend::OpenResults open_;
};

}  // namespace quire::test
