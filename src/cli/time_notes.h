#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "backend/sim/cost_model.h"
#include "sim/report.h"

namespace quire::cli {

/// What a reader of several simulations must know of the times of their steps.
class TimeNotes {
 public:
  void take(const backend::sim::CostModel& cost);
  void take(const sim::SimulationReport& report);

  /// Whose times they are, and how many are extrapolated, on standard output.
  void print() const;
  /// Why they may not be right, for a page.
  std::vector<std::string> complaints() const;

 private:
  std::set<std::string> sources_;
  std::set<std::string> warnings_;
  uint64_t extrapolated_ = 0;
  uint64_t steps_ = 0;
};

}  // namespace quire::cli
