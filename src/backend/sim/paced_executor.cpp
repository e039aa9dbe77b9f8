#include "backend/sim/paced_executor.h"

#include <algorithm>
#include <thread>

namespace quire::backend::sim {

Ticket PacedExecutor::submit(const control::StepPlan& plan) {
  submitted_.push_back(std::chrono::steady_clock::now());
  return inner_->submit(plan);
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
