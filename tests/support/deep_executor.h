#pragma once

#include "backend/executor.h"

namespace quire::test {

/// An executor that wants so many steps open.
class DeepExecutor final : public Executor {
 public:
  /// `inner` must outlive it.
  DeepExecutor(Executor& inner, uint32_t depth) : inner_(inner), depth_(depth) {}
  uint32_t depth() const override { return depth_; }
  Ticket submit(const StepPlan& plan) override { return inner_.submit(plan); }
  StepResult wait(Ticket ticket) override { return inner_.wait(ticket); }

 private:
  Executor& inner_;
  const uint32_t depth_;
};

}  // namespace quire::test
