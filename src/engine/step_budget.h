#pragma once

#include <cstdint>

#include "base/ids.h"
#include "control/scheduler.h"

namespace quire::engine {

/// The token budget with which a step takes a target time. The speed of a shared machine changes within
/// minutes. The budget follows the times of full steps: at once when they become slower, gradually when they
/// become faster. It is an input of the scheduler. Not thread-safe.
class StepBudget {
 public:
  /// `target`: the target time of a step, > 0. The budget starts at max_num_batched_tokens of `config`; it is
  /// never more, and never less than max_num_seqs.
  StepBudget(Nanos target, const control::SchedulerConfig& config);

  /// To be called after a step that kept the executor busy for `took` (0: unknown). Returns the budget of
  /// later steps.
  uint32_t after(const control::StepPlan& plan, Nanos took);

 private:
  /// In units of the cost of a prompt token without context.
  double cost(const control::StepPlan& plan) const;

  Nanos target_;
  uint32_t least_;
  uint32_t most_;
  double context_part_;
  double budget_;
};

}  // namespace quire::engine
