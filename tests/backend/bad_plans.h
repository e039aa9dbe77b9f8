#pragma once

#include <string>
#include <vector>

#include "control/step.h"

namespace quire::test {

/// Plans for an executor of 8 blocks of 16 and 2 slots that come after first_plan() and must be refused.
struct BadPlan {
  std::string name;
  control::StepPlan plan;
};

/// Slot 0 takes a prompt of 5 tokens in block 0 and samples.
control::StepPlan first_plan();
std::vector<BadPlan> bad_plans();

}  // namespace quire::test
