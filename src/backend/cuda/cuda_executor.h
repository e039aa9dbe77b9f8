#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/block_mover.h"
#include "backend/cuda/device_model.h"
#include "backend/cuda/device_sampler.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/sample_lists.h"
#include "backend/executor.h"
#include "backend/open_results.h"
#include "backend/slot_table.h"
#include "backend/sync/prompt_yields.h"
#include "base/thread_pool.h"
#include "control/step.h"

namespace quire::backend::cuda {

/// Computes and samples step plans on the device. submit() adds work to the device's stream, so that the next
/// step can be planned and submitted meanwhile; a token that a step in flight samples stays on the device for
/// the steps after it. wait() waits for a step's results. submit() waits for the device only for what steps
/// yield of prompts, which is rated on the host, and where the lists of a step's rows (penalties, bad words)
/// are more than there is memory for at once.
///
/// As sync::SyncExecutor, to the bit but for the last one of logprobs: a sequence's tokens depend on its own
/// tokens, parameters and masks alone; a plan that contradicts itself or earlier plans throws Error, and
/// logits that are not finite end only their own sequence.
class CudaExecutor final : public Executor {
 public:
  /// `model` and `pool` must outlive the executor. `depth`: 1 to kMostOpenSteps. Throws Error if the device
  /// has too little memory.
  CudaExecutor(DeviceModel& model, const SlotTable::Limits& limits, ThreadPool& pool, uint32_t depth);
  /// Waits for the steps in flight.
  ~CudaExecutor() override;

  uint32_t depth() const override { return depth_; }
  Ticket submit(const control::StepPlan& plan) override;
  void provide(Ticket ticket, TokenMasks& masks) override;
  control::StepResult wait(Ticket ticket) override;

 private:
  /// A sequence that has a slot, or had it when a step was submitted that is in flight.
  struct Tenant {
    SlotSampling sampling;
    Ticket stepped = 0;   // the last step in which it computes
    bool failed = false;  // its last token could not be sampled
  };
  /// A row of logits and what becomes of it.
  struct Row {
    uint32_t logits = 0;  // its number among them
    uint32_t seq = 0;     // index in StepPlan::seqs
    SlotId slot = kNoSlot;
    std::shared_ptr<Tenant> tenant;
    uint32_t position = 0;  // of the token to be sampled
    uint32_t result = DeviceSampler::kNoRow;
    std::vector<uint32_t> mask;  // if it has one
  };
  /// A sequence whose token a step in flight samples.
  struct LateSeq {
    uint32_t seq = 0;
    std::shared_ptr<Tenant> tenant;
  };
  struct OpenStep {
    Ticket ticket = 0;
    uint32_t lane = 0;
    control::StepResult result;
    std::vector<Row> rows;       // sampled at once
    std::vector<Row> late_rows;  // sampled once there are masks
    std::vector<LateSeq> late_seqs;
    bool has_late_times = false;
  };
  /// Of each lane: the places in the stream between which a step does what.
  struct Lane {
    Event started;
    Event computed;
    Event sampled;
    Event masked;  // before the late rows are sampled
    Event done;
  };
  void start(const control::StepPlan& plan);
  void gather(const control::StepPlan& plan, OpenStep& step);
  void note_writes(const control::SeqStep& seq, Ticket step);
  void sample(OpenStep& step, std::vector<Row>& rows);
  void fill_mask(Row& row, TokenMasks& masks, control::SeqResult& out) const;
  void take(const OpenStep& step, const Row& row, control::SeqResult& out);
  std::string why_no_token(const OpenStep& step, const Row& row, bool& refused) const;

  uint32_t depth_;
  DeviceModel& model_;
  ThreadPool& pool_;
  const uint32_t vocab_size_;
  SlotTable slots_;
  std::vector<std::shared_ptr<Tenant>> tenants_;  // by slot
  const uint32_t block_size_;
  BlockMover mover_;
  DeviceSampler sampler_;
  sync::PromptYields prompts_;
  std::vector<sample::SamplerWorkspace> workspaces_;  // per thread, for prompts_
  Lane lanes_[kMostOpenSteps];
  OpenSteps<OpenStep> open_;
  DeviceLogits logits_;  // of the newest step
  // The batch, rebuilt by every step in the same memory.
  std::vector<TokenId> tokens_;
  std::vector<decoder::BatchSeq> seqs_;
  std::vector<LateRow> late_tokens_;
  std::vector<uint32_t> places_;  // of the tokens of all rows, in tokens_
  std::vector<uint32_t> starts_;  // of each sequence of the plan: the place of its first token
};

}  // namespace quire::backend::cuda
