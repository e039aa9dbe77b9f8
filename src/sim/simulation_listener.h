#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"

namespace quire::sim {

/// Told of what happens in a simulation, in the thread that runs it, in order of virtual time. Requests are
/// numbered as in the workload, from 0. What a listener has no use for does nothing.
class SimulationListener {
 public:
  virtual ~SimulationListener() = default;
  /// It was not refused. `prompt` is valid during the call.
  virtual void arrived(size_t /*request*/, std::span<const TokenId> /*prompt*/) {}
  virtual void refused(size_t /*request*/, Nanos /*now*/) {}
  /// For the first time; of several choices, one is told.
  virtual void admitted(size_t /*request*/) {}
  /// One of the request's choices was preempted.
  virtual void preempted(size_t /*request*/, uint32_t /*choice*/, Nanos /*now*/) {}
  /// The same after it was preempted.
  virtual void admitted_again(size_t /*request*/, uint32_t /*choice*/, Nanos /*now*/) {}
  /// A step was done; now it is `ended`.
  virtual void step_done(Nanos /*began*/, Nanos /*ended*/) {}
  /// The last of its choices has ended.
  virtual void finished(size_t /*request*/) {}
};

}  // namespace quire::sim
