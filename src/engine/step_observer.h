#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "backend/executor.h"
#include "base/clock.h"
#include "control/step.h"
#include "engine/engine.h"
#include "engine/step_budget.h"
#include "engine/step_log.h"
#include "engine/step_trace.h"
#include "record/recorded_scheduler.h"

namespace quire::engine {

/// A step that is planned and not committed.
struct OpenStep {
  control::StepPlan plan;
  backend::Ticket ticket = 0;
  bool lacks_masks = false;
  bool after_rest = false;  // nothing was to do before it
  Nanos started = 0;        // when its planning began
  Nanos plan_time = 0;      // time spent in the scheduler
  Nanos submit_time = 0;
  Nanos awaited = 0;   // when the engine began to wait for its result
  Nanos computed = 0;  // when the executor had its result
  Nanos committed = 0;
  uint32_t budget = 0;  // with which it was planned
  control::PhaseTimes times;
};

/// Watches the steps of an engine: times them, writes the step trace, tells the step log and the shadow, lets
/// the token budget follow the speed, and checks the invariants if the configuration says so. The run's
/// record takes the same times from it. Used only by the engine thread.
class StepObserver {
 public:
  /// `clock` must outlive it, and so must `trace` and the sinks, which may be null.
  StepObserver(const EngineConfig& config, const Clock& clock, StepTrace* trace, StepSink* log,
               StepSink* shadow);

  /// Nothing is to do: the time until the next step begins is idle. Otherwise it belongs to that step.
  void rests() { rests_ = true; }
  /// To be called in this order in the life of a step.
  void begins(OpenStep& step, record::RecordedScheduler& scheduler);
  void planned(OpenStep& step) const { step.plan_time = clock_.now() - step.started; }
  void submitted(OpenStep& step) {
    step.after_rest = std::exchange(rests_, false);
    if (tells_) step.submit_time = clock_.now() - step.started - step.plan_time;
  }
  void waits(OpenStep& step) const {
    if (tells_) step.awaited = clock_.now();
  }
  control::StepResult computed(OpenStep& step, control::StepResult result) const;  // returns `result`
  /// Returns when the commit was done. Throws Error naming an invariant that is broken.
  Nanos committed(OpenStep& step, record::RecordedScheduler& scheduler);
  /// `open`: the steps in flight with this one.
  void delivered(const OpenStep& step, size_t open) {
    if (tells_) tell(step, open);
  }

  /// The tokens that later steps may have.
  StepTokens budget() const {
    return budget_ ? StepTokens{budget_->prompt_tokens(), true} : StepTokens{tokens_};
  }

  /// After the last step.
  void end() const {
    if (trace_ != nullptr) trace_->flush();
  }

 private:
  void tell(const OpenStep& step, size_t open);

  const Clock& clock_;
  StepTrace* trace_;
  StepSink* log_;
  StepSink* shadow_;
  bool tells_;            // one of these
  bool rests_ = true;     // since the last step was submitted
  Nanos delivered_ = -1;  // when the last step was
  std::optional<StepBudget> budget_;
  uint32_t tokens_;  // the scheduler's present budget
  bool check_invariants_;
};

}  // namespace quire::engine
