#pragma once

#include <atomic>

#include "base/clock.h"

namespace quire::sim {

/// A clock that stands still but when it is told to go on: the time of a simulation. Starts at 0.
class VirtualClock final : public Clock {
 public:
  Nanos now() const override { return now_.load(std::memory_order_acquire); }
  /// One caller. Throws Error if `time` lies in the past.
  void advance_to(Nanos time);

 private:
  std::atomic<Nanos> now_ = 0;
};

}  // namespace quire::sim
