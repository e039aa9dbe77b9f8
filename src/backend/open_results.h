#pragma once

#include <deque>
#include <utility>

#include <fmt/format.h>

#include "backend/executor.h"
#include "base/error.h"

namespace quire::backend {

/// The steps of an executor between submit() and wait(): at most kMostOpenSteps, returned in order. The
/// newest may lack late rows, which wait for their masks. `Step`: what the executor keeps of each.
template <class Step>
class OpenSteps {
 public:
  /// To be called before the plan is carried out. Throws Error if too many are in flight, or the newest lacks
  /// rows.
  void check_room(const control::StepPlan& plan) const {
    if (lacks_rows_) refuse("submit", last_);
    if (steps_.size() < kMostOpenSteps) return;
    throw Error(
        fmt::format("step plan: submit: step {} is one too many, {} are open", plan.step, steps_.size()));
  }
  /// What push() returns next.
  Ticket next_ticket() const { return last_ + 1; }
  Ticket push(Step step, bool lacks_rows) {
    steps_.push_back(std::move(step));
    lacks_rows_ = lacks_rows;
    return ++last_;
  }
  /// Null if none is open.
  const Step* newest() const { return steps_.empty() ? nullptr : &steps_.back(); }
  /// The step whose late rows are to be sampled now; null if it has none. Throws Error if the ticket is not
  /// the only open one.
  Step* provide(Ticket ticket) {
    if (steps_.size() != 1 || ticket != last_) {
      throw Error(fmt::format("step plan: provide: ticket {} is not the only open one", ticket));
    }
    return std::exchange(lacks_rows_, false) ? &steps_.front() : nullptr;
  }
  /// Throws Error if the ticket is not the oldest, or lacks rows.
  Step take(Ticket ticket) {
    if (steps_.empty() || ticket != last_ + 1 - steps_.size()) {
      throw Error(fmt::format("step plan: wait: ticket {} is not the oldest open one", ticket));
    }
    if (lacks_rows_ && steps_.size() == 1) refuse("wait", ticket);
    Step out = std::move(steps_.front());
    steps_.pop_front();
    return out;
  }

 private:
  [[noreturn]] static void refuse(const char* call, Ticket ticket) {
    throw Error(fmt::format("step plan: {}: the masks of ticket {} were not provided", call, ticket));
  }

  std::deque<Step> steps_;
  Ticket last_ = 0;
  bool lacks_rows_ = false;  // the newest
};

/// Those of a synchronous executor, which has their results from the start.
using OpenResults = OpenSteps<control::StepResult>;

}  // namespace quire::backend
