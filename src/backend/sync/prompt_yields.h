#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/slot_table.h"
#include "backend/sync/step_model.h"
#include "base/ids.h"
#include "base/thread_pool.h"
#include "control/step.h"
#include "sample/sampler.h"

namespace quire::backend::sync {

/// What steps yield of prompts (StepPlan::prompts): rows of logprobs and pooled hidden states. The
/// head runs over at most kMostRows rows at a time, of which only the best tokens are kept.
class PromptYields {
 public:
  static constexpr size_t kMostRows = 64;

  /// Both must outlive it.
  PromptYields(StepModel& model, ThreadPool& pool, uint32_t max_slots, size_t vocab_size)
      : model_(model), pool_(pool), vocab_size_(vocab_size), sums_(max_slots) {}

  /// A new sequence has the slot.
  void reset(SlotId slot) { sums_[slot].clear(); }

  /// After the model has computed the plan: fills result.prompts. A row that is not finite is an error of
  /// its sequence. `starts`: of each sequence of the plan, the place of its first token among those computed.
  /// `workspaces`: one per thread of the pool.
  void take(const control::StepPlan& plan, const SlotTable& slots, std::span<const uint32_t> starts,
            std::vector<sample::SamplerWorkspace>& workspaces, control::StepResult& result);

 private:
  /// A chunk of a prompt, and where its tokens are among those that the decoder has computed.
  struct Chunk {
    const control::PromptStep& part;
    const control::SeqStep& seq;
    uint32_t place = 0;
    const PromptWants& wants;
  };
  void add_rows(const Chunk& chunk, std::vector<sample::SamplerWorkspace>& workspaces, PromptYield& out,
                std::string& error);
  void add_to_mean(const Chunk& chunk);
  std::span<const uint32_t> places(uint32_t first, size_t count);

  StepModel& model_;
  ThreadPool& pool_;
  const size_t vocab_size_;
  std::vector<std::vector<double>> sums_;  // by slot: of the prompt's hidden states, if the mean is wanted
  std::vector<uint32_t> places_;
  std::vector<std::string> errors_;  // by row of the slice
};

}  // namespace quire::backend::sync
