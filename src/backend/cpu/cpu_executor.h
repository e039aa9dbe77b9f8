#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/decoder.h"
#include "backend/executor.h"
#include "backend/open_results.h"
#include "backend/slot_table.h"
#include "base/ids.h"
#include "control/step.h"
#include "kernels/context.h"
#include "sample/sampler.h"

namespace quire::backend::cpu {

/// Computes step plans with a decoder on the CPU: one forward pass over the whole batch, then sampling, the
/// rows spread over the context's threads. A sequence's tokens and logprobs depend on its own tokens and
/// parameters alone. Synchronous: submit computes, wait returns what it found.
///
/// A plan that contradicts itself or the former ones is a bug of whoever made it and throws Error; the
/// executor is of no use afterwards. Logits that are not finite end their sequence only (SeqResult::error).
class CpuExecutor final : public Executor {
 public:
  /// All three must outlive the executor, and nobody else use `cache` and `context` while it computes.
  /// Slots are [0, max_slots). `host`: the pool to which a plan may move blocks, of the same model and type;
  /// it must outlive the executor too.
  CpuExecutor(Decoder& decoder, KvCache& cache, kernels::KernelContext& context, uint32_t max_slots,
              KvCache* host = nullptr);

  Ticket submit(const control::StepPlan& plan) override;
  control::StepResult wait(Ticket ticket) override;

 private:
  /// A row of logits and where its token goes.
  struct Row {
    uint32_t seq = 0;  // index in StepPlan::seqs
    SlotId slot = kNoSlot;
    uint32_t position = 0;  // of the token to be sampled
  };

  void move_blocks(const control::StepPlan& plan);
  /// The batch, into tokens_, seqs_ and rows_.
  void gather(const control::StepPlan& plan, control::StepResult& result);
  void sample(std::span<const float> logits, control::StepResult& result);

  Decoder& decoder_;
  KvCache& cache_;
  kernels::KernelContext& context_;
  KvCache* const host_;
  const uint32_t vocab_size_;
  SlotTable slots_;
  std::vector<sample::SequenceSampler> samplers_;     // by slot
  std::vector<sample::SamplerWorkspace> workspaces_;  // per thread
  // The batch, built anew by every step in memory that is kept.
  std::vector<TokenId> tokens_;
  std::vector<DecoderSeq> seqs_;
  std::vector<Row> rows_;
  OpenResults open_;
};

}  // namespace quire::backend::cpu
