#pragma once

#include <span>

#include "sim/kept_requests.h"
#include "sim/report.h"
#include "sim/simulation.h"

namespace quire::sim {

/// A simulation with the records of all its requests, and with its report.
class FollowedSimulation : public Simulation {
 public:
  using Simulation::Simulation;
  std::span<const KeptRequest> records() const { return kept_.records(); }
  SimulationReport report() const { return report_.report(); }

 private:
  KeptRequests kept_{*this};
  ReportBuilder report_{*this};
};

}  // namespace quire::sim
