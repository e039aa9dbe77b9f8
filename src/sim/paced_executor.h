#pragma once

#include <chrono>
#include <cstdint>

#include "exec/executor.h"

namespace quire {

/// Makes the steps of a simulated executor last as long as it says, by the machine's clock: a server behind
/// it answers at the pace of the simulated device.
class PacedExecutor final : public Executor {
 public:
  /// `inner` must outlive it. `speed`: so many times faster, in hundredths (100: as it says). REQUIRES: > 0.
  PacedExecutor(Executor& inner, uint32_t speed_percent) : inner_(inner), speed_percent_(speed_percent) {}

  Ticket submit(const StepPlan& plan) override;
  /// Sleeps until the step's time, counted from its submit, is over.
  StepResult wait(Ticket ticket) override;

 private:
  Executor& inner_;
  uint32_t speed_percent_;
  std::chrono::steady_clock::time_point submitted_;
};

}  // namespace quire
