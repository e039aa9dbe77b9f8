#pragma once

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#include "backend/executor.h"
#include "backend/sim/sim_executor.h"

namespace quire::backend::sim {

/// Makes the steps of a simulated executor last as long as their simulated time, by the machine's clock: a
/// server that uses it answers at the pace of the simulated device. It warns in the log of the first step
/// whose time is extrapolated (SimExecutor::extrapolated).
class PacedExecutor final : public Executor {
 public:
  /// `speed_percent`: the speed in percent of the simulated one (100: real time).
  /// REQUIRES: > 0.
  PacedExecutor(std::unique_ptr<SimExecutor> inner, uint32_t speed_percent)
      : inner_(std::move(inner)), speed_percent_(speed_percent) {}

  uint32_t depth() const override { return inner_->depth(); }
  Ticket submit(const control::StepPlan& plan) override;
  void provide(Ticket ticket, TokenMasks& masks) override { inner_->provide(ticket, masks); }
  /// Sleeps until the step's time is over, counted from its submit or from the end of the previous step,
  /// whichever is later.
  control::StepResult wait(Ticket ticket) override;

 private:
  std::unique_ptr<SimExecutor> inner_;
  bool warned_ = false;
  uint32_t speed_percent_;
  std::deque<std::chrono::steady_clock::time_point> submitted_;  // of each step in flight
  std::chrono::steady_clock::time_point done_;                   // when the last step ended
};

}  // namespace quire::backend::sim
