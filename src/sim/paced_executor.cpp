#include "sim/paced_executor.h"

#include <thread>

namespace quire {

Ticket PacedExecutor::submit(const StepPlan& plan) {
  submitted_ = std::chrono::steady_clock::now();
  return inner_.submit(plan);
}

StepResult PacedExecutor::wait(Ticket ticket) {
  StepResult result = inner_.wait(ticket);
  result.times.compute = result.times.compute * 100 / speed_percent_;
  std::this_thread::sleep_until(submitted_ + std::chrono::nanoseconds(result.times.compute));
  return result;
}

}  // namespace quire
