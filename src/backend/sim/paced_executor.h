#pragma once

#include <chrono>
#include <cstdint>
#include <deque>

#include "backend/executor.h"

namespace quire::backend::sim {

/// Makes the steps of a simulated executor last as long as it says, by the machine's clock: a server behind
/// it answers at the pace of the simulated device.
class PacedExecutor final : public Executor {
 public:
  /// `inner` must outlive it. `speed`: so many times faster, in hundredths (100: as it says). REQUIRES: > 0.
  PacedExecutor(Executor& inner, uint32_t speed_percent) : inner_(inner), speed_percent_(speed_percent) {}

  uint32_t depth() const override { return inner_.depth(); }
  Ticket submit(const control::StepPlan& plan) override;
  /// Sleeps until the step's time, counted from its submit or from the end of the step before, is over.
  control::StepResult wait(Ticket ticket) override;

 private:
  Executor& inner_;
  uint32_t speed_percent_;
  std::deque<std::chrono::steady_clock::time_point> submitted_;  // of each open step
  std::chrono::steady_clock::time_point done_;                   // when the last step was over
};

}  // namespace quire::backend::sim
