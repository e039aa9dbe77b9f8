#pragma once

#include <utility>

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

/// Tells a listener of events, with the state of the run.
class RunFollower {
 public:
  /// `listener` must outlive it.
  RunFollower(RunState state, RunListener& listener) : state_(std::move(state)), listener_(listener) {}

  void take(const RunEvent& event);
  /// All decisions of the last plan have been taken.
  void end();
  const RunState& state() const { return state_; }

 private:
  RunState state_;
  RunListener& listener_;
  bool open_ = false;  // a plan whose decisions may follow
};

/// Reads a run to its end, or until the listener is done. Throws what RunReader and the listener throw.
void follow_run(RunReader& reader, RunListener& listener);

/// Reads a run to its end for two listeners: `first`, until it is done, in the calling thread, and `second`
/// in another, each with a state of its own. Throws what RunReader and the listeners throw, once the other
/// thread has ended.
void follow_run(RunReader& reader, RunListener& first, RunListener& second);

}  // namespace quire::record
