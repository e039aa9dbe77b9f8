#pragma once

#include <deque>
#include <utility>

#include <fmt/format.h>

#include "backend/executor.h"
#include "base/error.h"

namespace quire::backend {

/// The results of a synchronous executor between submit() and wait(): at most kMostOpenSteps, returned in
/// order. The newest may lack late rows, which wait for their masks.
class OpenResults {
 public:
  /// To be called before the plan is carried out. Throws Error if too many are in flight, or the newest lacks
  /// rows.
  void check_room(const control::StepPlan& plan) const {
    if (lacks_rows_) refuse("submit", last_);
    if (results_.size() < kMostOpenSteps) return;
    throw Error(
        fmt::format("step plan: submit: step {} is one too many, {} are open", plan.step, results_.size()));
  }
  Ticket push(control::StepResult result, bool lacks_rows) {
    results_.push_back(std::move(result));
    lacks_rows_ = lacks_rows;
    return ++last_;
  }
  /// The result whose late rows are to be sampled now; null if it has none. Throws Error if the ticket is not
  /// the only open one.
  control::StepResult* provide(Ticket ticket) {
    if (results_.size() != 1 || ticket != last_) {
      throw Error(fmt::format("step plan: provide: ticket {} is not the only open one", ticket));
    }
    return std::exchange(lacks_rows_, false) ? &results_.front() : nullptr;
  }
  /// Throws Error if the ticket is not the oldest, or lacks rows.
  control::StepResult take(Ticket ticket) {
    if (results_.empty() || ticket != last_ + 1 - results_.size()) {
      throw Error(fmt::format("step plan: wait: ticket {} is not the oldest open one", ticket));
    }
    if (lacks_rows_ && results_.size() == 1) refuse("wait", ticket);
    control::StepResult out = std::move(results_.front());
    results_.pop_front();
    return out;
  }

 private:
  [[noreturn]] static void refuse(const char* call, Ticket ticket) {
    throw Error(fmt::format("step plan: {}: the masks of ticket {} were not provided", call, ticket));
  }

  std::deque<control::StepResult> results_;
  Ticket last_ = 0;
  bool lacks_rows_ = false;  // the newest
};

}  // namespace quire::backend
