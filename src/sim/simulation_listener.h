#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace quire::sim {

struct RequestRecord;
struct SimRequest;

/// A request of a simulation and what has become of it so far.
struct SimulatedRequest {
  size_t number = 0;  // in the workload, from 0
  const SimRequest& request;
  const RequestRecord& record;
};

/// Told of what happens in a simulation, in the thread that runs it, in order of virtual time. What it is
/// handed is valid during the call. What a listener has no use for does nothing.
class SimulationListener {
 public:
  virtual ~SimulationListener() = default;
  /// Whether arrived() is to have prompts, which otherwise need not be made yet. Always the same.
  virtual bool wants_prompts() const { return false; }
  /// It was not refused. `prompt` is empty if no listener wants it.
  virtual void arrived(const SimulatedRequest& /*of*/, std::span<const TokenId> /*prompt*/) {}
  /// Also one that was never sent (Refusal::kConversation).
  virtual void refused(const SimulatedRequest& /*of*/, Nanos /*now*/) {}
  /// For the first time; of several choices, one is told.
  virtual void admitted(size_t /*request*/) {}
  /// One of the request's choices was preempted.
  virtual void preempted(size_t /*request*/, uint32_t /*choice*/, Nanos /*now*/) {}
  /// The same after it was preempted.
  virtual void admitted_again(size_t /*request*/, uint32_t /*choice*/, Nanos /*now*/) {}
  /// A step was done; now it is `ended`.
  virtual void step_done(Nanos /*began*/, Nanos /*ended*/) {}
  /// The last of its choices has ended.
  virtual void finished(const SimulatedRequest& /*of*/) {}
  /// The simulation was broken off before its end, or before it was sent. First come those that were sent, in
  /// the order of their numbers.
  virtual void unfinished(const SimulatedRequest& /*of*/, Nanos /*now*/) {}
};

}  // namespace quire::sim
