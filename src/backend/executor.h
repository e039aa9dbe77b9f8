#pragma once

#include <cstdint>

#include "backend/token_masks.h"
#include "control/step.h"

namespace quire::backend {

using Ticket = uint64_t;

/// Carries out step plans on the CPU, a GPU, or a simulated device. Plans are submitted in order and waited
/// for in order, and carried out as if one after the other, as control/step.h says. For one caller. All
/// calls throw Error if the device fails as a whole; a failure of one sequence is in its SeqResult.
class Executor {
 public:
  virtual ~Executor() = default;
  /// How many plans should be in flight (submitted, not waited for) at once to keep the device busy: from 1
  /// to kMostOpenSteps. An executor that computes in submit() wants 1. Every executor accepts any number up
  /// to kMostOpenSteps.
  virtual uint32_t depth() const { return 1; }
  /// Starts the plan; a synchronous executor may finish it too. The plan is not needed after the call.
  virtual Ticket submit(const control::StepPlan& plan) = 0;
  /// Samples the late rows of the newest plan, those of sequences with a mask source; does nothing if it has
  /// none. To be called once the plans before it have been waited for, and before the next submit() or wait()
  /// if there are such rows. `masks` is not needed after the call.
  virtual void provide(Ticket ticket, TokenMasks& masks) = 0;
  /// The result of the oldest submitted plan, once per ticket.
  virtual control::StepResult wait(Ticket ticket) = 0;
};

inline constexpr uint32_t kMostOpenSteps = 3;

}  // namespace quire::backend
