#include "engine/step_observer.h"

#include <string>
#include <utility>

#include "base/error.h"

namespace quire::engine {

StepObserver::StepObserver(const EngineConfig& config, const Clock& clock, StepTrace* trace)
    : clock_(clock),
      trace_(trace),
      tokens_(config.scheduler.max_num_batched_tokens),
      check_invariants_(config.check_invariants) {
  if (config.step_time > 0) budget_.emplace(config.step_time, config.scheduler);
}

control::StepResult StepObserver::computed(OpenStep& step, control::StepResult result) const {
  step.times = result.times;
  step.computed = clock_.now();
  return result;
}

Nanos StepObserver::committed(const OpenStep& step, record::RecordedScheduler& scheduler) {
  const Nanos now = clock_.now();
  if (budget_) {
    const uint32_t tokens = budget_->after(step.plan, step.times.compute + step.times.sample);
    if (std::exchange(tokens_, tokens) != tokens) scheduler.set_budget(tokens);
  }
  if (check_invariants_) {
    if (const std::string broken = scheduler.scheduler().check_invariants(); !broken.empty())
      throw Error(broken);
  }
  if (trace_ != nullptr) {
    trace_->write(step.started, scheduler.stats(), step.times, step.plan_time, now - step.computed);
  }
  return now;
}

}  // namespace quire::engine
