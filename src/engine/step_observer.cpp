#include "engine/step_observer.h"

#include <algorithm>
#include <string>
#include <utility>

#include "backend/step_work.h"
#include "base/error.h"

namespace quire::engine {

StepObserver::StepObserver(const EngineConfig& config, const Clock& clock, StepTrace* trace, StepSink* log,
                           StepSink* shadow)
    : clock_(clock),
      trace_(trace),
      log_(log),
      shadow_(shadow),
      tells_(log != nullptr || shadow != nullptr),
      tokens_(config.scheduler.max_num_batched_tokens),
      check_invariants_(config.check_invariants) {
  if (config.step_time > 0) budget_.emplace(config.step_time, config.scheduler);
}

void StepObserver::begins(OpenStep& step, record::RecordedScheduler& scheduler) {
  step.started = clock_.now();
  if (budget_) {
    const uint32_t tokens = budget_->prompt_tokens() + scheduler.stats().running;
    if (std::exchange(tokens_, tokens) != tokens) scheduler.set_budget(tokens);
  }
  step.budget = tokens_;
}

control::StepResult StepObserver::computed(OpenStep& step, control::StepResult result) const {
  step.times = result.times;
  step.computed = clock_.now();
  return result;
}

Nanos StepObserver::committed(OpenStep& step, record::RecordedScheduler& scheduler) {
  const Nanos now = clock_.now();
  step.committed = now;
  if (budget_) budget_->after(step.plan, step.times.compute + step.times.sample);
  if (check_invariants_) {
    if (const std::string broken = scheduler.scheduler().check_invariants(); !broken.empty())
      throw Error(broken);
  }
  if (trace_ != nullptr) {
    trace_->write(step.started, scheduler.stats(), step.times, step.plan_time, now - step.computed);
  }
  return now;
}

void StepObserver::tell(const OpenStep& step, size_t open) {
  const Nanos now = clock_.now();
  const Nanos begin = step.after_rest ? std::max(step.started, delivered_) : delivered_;
  backend::StepRecord record;
  record.step = step.plan.step;
  record.started = step.started;
  record.budget = step.budget;
  record.open = open;
  record.work = backend::work_of(step.plan);
  record.plan = step.plan_time;
  record.submit = step.submit_time;
  record.wait = step.computed - step.awaited;
  record.compute = step.times.compute;
  record.sample = step.times.sample;
  record.commit = step.committed - step.computed;
  record.deliver = now - step.committed;
  record.idle = delivered_ < 0 ? 0 : begin - delivered_;
  record.whole = now - begin;
  if (log_ != nullptr) log_->take(record);
  if (shadow_ != nullptr) shadow_->take(record);
  delivered_ = now;
}

}  // namespace quire::engine
