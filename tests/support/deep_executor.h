#pragma once

#include "backend/executor.h"

namespace quire::test {

/// An executor that wants so many steps open.
class DeepExecutor final : public backend::Executor {
 public:
  /// `inner` must outlive it.
  DeepExecutor(backend::Executor& inner, uint32_t depth) : inner_(inner), depth_(depth) {}
  uint32_t depth() const override { return depth_; }
  backend::Ticket submit(const control::StepPlan& plan) override { return inner_.submit(plan); }
  void provide(backend::Ticket ticket, backend::TokenMasks& masks) override { inner_.provide(ticket, masks); }
  control::StepResult wait(backend::Ticket ticket) override { return inner_.wait(ticket); }

 private:
  backend::Executor& inner_;
  const uint32_t depth_;
};

}  // namespace quire::test
