#include "backend/sim/paced_executor.h"

#include <algorithm>
#include <thread>

#include "base/log.h"

namespace quire::backend::sim {

Ticket PacedExecutor::submit(const control::StepPlan& plan) {
  submitted_.push_back(std::chrono::steady_clock::now());
  const Ticket ticket = inner_->submit(plan);
  if (!warned_ && inner_->extrapolated() > 0) {
    warned_ = true;
    log_warning(
        "--cost: a step lies beyond what the cost model was fitted to (more of some count, as "
        "tokens, context or copies, fewer tokens or sequences, or another kind of step): "
        "its time is extrapolated, as that of others may be");
  }
  return ticket;
}

control::StepResult PacedExecutor::wait(Ticket ticket) {
  control::StepResult result = inner_->wait(ticket);
  result.times.compute = result.times.compute * 100 / speed_percent_;
  done_ = std::max(done_, submitted_.front()) + std::chrono::nanoseconds(result.times.compute);
  submitted_.pop_front();
  std::this_thread::sleep_until(done_);
  return result;
}

}  // namespace quire::backend::sim
