#pragma once

#include <atomic>

#include "base/clock.h"

namespace quire::sim {

/// The clock of a simulation, which advances only on request. Starts at 0.
class VirtualClock final : public Clock {
 public:
  Nanos now() const override { return now_.load(std::memory_order_acquire); }
  /// One caller. Throws Error if `time` is in the past.
  void advance_to(Nanos time);

 private:
  std::atomic<Nanos> now_ = 0;
};

}  // namespace quire::sim
