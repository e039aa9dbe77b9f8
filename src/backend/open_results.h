#pragma once

#include <deque>
#include <utility>

#include <fmt/format.h>

#include "backend/executor.h"
#include "base/error.h"

namespace quire::backend {

/// The results of a synchronous executor between submit() and wait(): at most kMostOpenSteps, returned in
/// order.
class OpenResults {
 public:
  /// To be called before the plan is carried out. Throws Error if too many are in flight.
  void check_room(const control::StepPlan& plan) const {
    if (results_.size() < kMostOpenSteps) return;
    throw Error(
        fmt::format("step plan: submit: step {} is one too many, {} are open", plan.step, results_.size()));
  }
  Ticket push(control::StepResult result) {
    results_.push_back(std::move(result));
    return ++last_;
  }
  /// Throws Error if the ticket is not the oldest.
  control::StepResult take(Ticket ticket) {
    if (results_.empty() || ticket != last_ + 1 - results_.size()) {
      throw Error(fmt::format("step plan: wait: ticket {} is not the oldest open one", ticket));
    }
    control::StepResult out = std::move(results_.front());
    results_.pop_front();
    return out;
  }

 private:
  std::deque<control::StepResult> results_;
  Ticket last_ = 0;
};

}  // namespace quire::backend
