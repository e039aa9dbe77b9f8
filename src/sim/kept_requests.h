#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "sim/simulation.h"
#include "sim/simulation_listener.h"

namespace quire::sim {

/// The life of a request, and what a trace or the draws said of it.
struct KeptRequest : RequestRecord {
  uint32_t line = 0;  // of the trace; 0: there is none
  uint32_t tenant = 0;
  int32_t priority = 0;

  /// Whether it was sent, or refused unsent. A run that is broken off leaves others.
  bool has_history() const { return arrival >= 0 || refused.has_value(); }
};

/// Keeps what became of each request of a simulation, in some 100 bytes. Not thread-safe.
class KeptRequests final : public SimulationListener {
 public:
  /// Listens to `simulation`, which must not have begun and must outlive it.
  explicit KeptRequests(Simulation& simulation);
  KeptRequests(const KeptRequests&) = delete;
  KeptRequests& operator=(const KeptRequests&) = delete;

  /// By number. Those that have not ended are empty until the simulation was broken off.
  std::span<const KeptRequest> records() const { return records_; }
  const Simulation& simulation() const { return simulation_; }

  void finished(const SimulatedRequest& of) override { keep(of); }
  void refused(const SimulatedRequest& of, Nanos /*now*/) override { keep(of); }
  void unfinished(const SimulatedRequest& of, Nanos /*now*/) override { keep(of); }

 private:
  void keep(const SimulatedRequest& of);

  const Simulation& simulation_;
  std::vector<KeptRequest> records_;
};

}  // namespace quire::sim
