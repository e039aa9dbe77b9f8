#pragma once

#include <cstdint>

#include "base/ids.h"
#include "control/scheduler.h"

namespace quire::engine {

/// The token budget with which a step takes so long as it should. The speed of a machine that others share
/// changes within minutes; this follows the steps that were full, at once where they became slower, by and by
/// where they became faster. What it gives is an input of the scheduler. Not thread-safe.
class StepBudget {
 public:
  /// `target`: what a step should take, > 0. The budget is at first max_num_batched_tokens of `config`, never
  /// more and never less than max_num_seqs.
  StepBudget(Nanos target, const control::SchedulerConfig& config);

  /// After a step that kept the executor busy for so long (0: it does not say): the budget of those to come.
  uint32_t after(const control::StepPlan& plan, Nanos took);

 private:
  /// In tokens of a prompt's beginning.
  double cost(const control::StepPlan& plan) const;

  Nanos target_;
  uint32_t least_;
  uint32_t most_;
  double context_part_;
  double budget_;
};

}  // namespace quire::engine
