#pragma once

#include <cstdint>

#include "control/step.h"

namespace quire {

using Ticket = uint64_t;

/// Carries out step plans: the CPU, a GPU, or a simulation. Plans are submitted in order and waited for in
/// order; one caller. Both calls throw Error if the device fails as a whole; what concerns one sequence is in
/// its SeqResult.
class Executor {
 public:
  virtual ~Executor() = default;
  /// Starts the plan; a synchronous executor may as well finish it. The plan is not needed after the call.
  virtual Ticket submit(const StepPlan& plan) = 0;
  /// The result of a submitted plan, once per ticket.
  virtual StepResult wait(Ticket ticket) = 0;
};

}  // namespace quire
