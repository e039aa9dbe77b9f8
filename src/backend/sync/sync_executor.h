#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/executor.h"
#include "backend/open_results.h"
#include "backend/slot_table.h"
#include "backend/sync/prompt_yields.h"
#include "backend/sync/step_model.h"
#include "base/ids.h"
#include "base/thread_pool.h"
#include "control/step.h"
#include "decoder/batch.h"
#include "sample/sampler.h"

namespace quire::backend::sync {

/// Computes step plans with a model on any device: one forward pass over the whole batch, then sampling on
/// the host, with the rows distributed over the threads of a pool. A sequence's tokens and logprobs depend on
/// its own tokens and parameters (and masks) alone. Synchronous: submit computes and samples, provide samples
/// late rows, wait returns the result.
///
/// A plan that contradicts itself or earlier plans is a bug of the caller and throws Error; the executor must
/// not be used afterwards. Logits that are not finite end only their own sequence (SeqResult::error).
class SyncExecutor : public Executor {
 public:
  /// `model` and `pool` must outlive the executor, and no other code may use them while it computes.
  SyncExecutor(StepModel& model, const SlotTable::Limits& limits, ThreadPool& pool);

  Ticket submit(const control::StepPlan& plan) override;
  void provide(Ticket ticket, TokenMasks& masks) override;
  control::StepResult wait(Ticket ticket) override;

 private:
  /// A row of logits and the destination of its token.
  struct Row {
    uint32_t index = 0;  // in the logits
    uint32_t seq = 0;    // index in StepPlan::seqs
    SlotId slot = kNoSlot;
    uint32_t position = 0;  // of the token to be sampled
  };

  void move_blocks(const control::StepPlan& plan);
  /// Collects the batch into tokens_, seqs_, rows_, late_rows_ and places_.
  void gather(const control::StepPlan& plan, control::StepResult& result);
  /// `masks`: null if the rows need none.
  void sample(std::span<const Row> rows, TokenMasks* masks, control::StepResult& result);
  /// The mask for a row; an empty one, and what failed in `out`, if there is none.
  std::span<const uint32_t> mask_of(const Row& row, uint32_t thread, TokenMasks& masks,
                                    control::SeqResult& out);

  StepModel& model_;
  ThreadPool& pool_;
  const uint32_t vocab_size_;
  SlotTable slots_;
  std::vector<sample::SequenceSampler> samplers_;     // by slot
  std::vector<sample::SamplerWorkspace> workspaces_;  // per thread
  // The batch, rebuilt by every step in the same memory.
  std::vector<TokenId> tokens_;
  std::vector<decoder::BatchSeq> seqs_;
  std::vector<Row> rows_;         // to be sampled at once
  std::vector<Row> late_rows_;    // to be sampled once there are masks
  std::vector<uint32_t> places_;  // of the tokens of all these rows, in tokens_
  std::span<const float> logits_;
  std::vector<std::vector<uint32_t>> masks_;  // per thread
  std::vector<uint32_t> starts_;              // of each sequence of the plan: the place of its first token
  PromptYields prompts_;
  OpenResults open_;
};

}  // namespace quire::backend::sync
