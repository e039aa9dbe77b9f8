#pragma once

#include <functional>

#include "backend/step_work.h"

namespace quire::engine {

/// How long a step is expected to take, in nanoseconds.
struct StepCost {
  double device = 0;             // in its phases: compute and sample
  double host = 0;               // in the rest of the step
  bool is_extrapolated = false;  // the step lies beyond what the model was fitted to

  double whole() const { return device + host; }
};

/// A model of the time of a step. Pure, and called on the engine thread.
using StepCosts = std::function<StepCost(const backend::StepWork&)>;

}  // namespace quire::engine
