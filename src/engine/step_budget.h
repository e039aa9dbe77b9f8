#pragma once

#include <cstdint>

#include "base/ids.h"
#include "control/scheduler.h"

namespace quire::engine {

/// The tokens that a step may have.
struct StepTokens {
  uint32_t tokens = 0;
  /// Whether these are for prompts, and each sequence that decodes has one more; otherwise they are for both.
  bool besides_decodes = false;
};

/// The prompt tokens that take a target time of a step; what decodes takes its time besides. So those who
/// stream wait for that time and for a step of their own, and take nearly no tokens from a prompt. The speed
/// of a shared machine changes within minutes, and what a context costs is known roughly: the tokens follow
/// the times of full steps, at once when they become slower, gradually when they become faster. They are an
/// input of the scheduler. Not thread-safe.
class StepBudget {
 public:
  /// `target`: the target time, > 0. Prompts have at most max_num_batched_tokens of `config` less
  /// max_num_seqs for decodes, with which they begin, and at least max_num_seqs if that is less.
  StepBudget(Nanos target, const control::SchedulerConfig& config);

  /// To be called after a step that kept the executor busy for `took` (0: unknown).
  void after(const control::StepPlan& plan, Nanos took);

  /// In units of the cost of a prompt token without context.
  uint32_t prompt_tokens() const { return static_cast<uint32_t>(tokens_); }

 private:
  double target_;
  double most_;
  double least_;
  double context_part_;
  double tokens_;
};

}  // namespace quire::engine
