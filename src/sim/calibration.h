#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/sim/cost_file.h"
#include "backend/step_work.h"

namespace quire::sim {

/// Steps that took too long for their work, one after the other: something else ran on the machine.
struct SlowSteps {
  uint64_t first = 0;  // StepRecord::step
  uint64_t last = 0;
  double factor = 0;  // of the fitted time, the largest
};

struct Calibration {
  backend::sim::CostFile file;  // without model, machine and build
  std::vector<SlowSteps> slow;  // what was left out
  std::vector<double> fitted;   // by record: the time that the model gives, in nanoseconds
  bool samples_apart = false;   // sampled rows have a cost of their own, beside that of their logits
};

/// Fits a cost model to the records of steps, at least kLeastSteps. The device's phases (compute and sample)
/// and the engine's (the rest of a step) are fitted one by one: a sum of terms with costs that are not
/// negative, and in the tokens of a step a piecewise linear function that only grows. What is least is the
/// sum of the squares of relative errors, so a short step counts as much as a long one. Steps that took far
/// longer than a first fit says are left out of the second. The errors are those of a five-fold
/// cross-validation: each step's time is compared with a fit that did not see it. Sampled rows get a cost of
/// their own only if that makes these errors smaller: most steps sample from each row of logits, and then
/// the two cannot be told apart. Throws Error if there are too few steps, if steps overlapped (several in
/// flight), whose times are no sum, or if a reader of the file would refuse what comes out.
Calibration calibrate(std::span<const backend::StepRecord> records);
inline constexpr size_t kLeastSteps = 50;

}  // namespace quire::sim
