#pragma once

#include "record/run_state.h"

namespace quire::record {

/// Receives the events of a run as it is read.
class RunListener {
 public:
  virtual ~RunListener() = default;
  /// `state` does not include the event yet.
  virtual void before(const RunEvent& event, const RunState& state) = 0;
  /// `state` includes the event.
  virtual void after(const RunEvent& /*event*/, const RunState& /*state*/) {}
  /// Called when `state` includes all decisions of a plan.
  virtual void planned(const RunState& state) = 0;
  /// Whether reading may stop.
  virtual bool done() const { return false; }
};

/// Reads a run to its end, or until the listener is done. Throws what RunReader and the listener throw.
void follow_run(RunReader& reader, RunListener& listener);

/// Reads a run to its end for two listeners: `first`, until it is done, in the calling thread, and `second`
/// in another, each with a state of its own. Throws what RunReader and the listeners throw, once the other
/// thread has ended.
void follow_run(RunReader& reader, RunListener& first, RunListener& second);

}  // namespace quire::record
