#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "base/rng.h"
#include "sim/workload_lengths.h"

namespace quire::sim {

/// When requests arrive, or conversations begin, whatever becomes of the earlier ones (an open loop).
struct ArrivalConfig {
  uint64_t seed = 0;
  uint64_t rate_thousandths = 0;  // requests per second, in thousandths; 0: none
  /// The shape of the gamma distribution of the times between them, as vLLM's benchmark has it: 1 is a
  /// Poisson process, less is burstier, more is more regular. 10 to 1,000,000 thousandths.
  uint32_t burstiness_thousandths = 1000;
  /// On/off: requests arrive at that rate while it is on, and not while it is off; the lengths of these
  /// phases in milliseconds, of which the first is on. Both or neither.
  std::optional<Lengths> on_ms;
  std::optional<Lengths> off_ms;
  uint32_t burst = 0;     // a burst of additional requests, at any phase ...
  Nanos burst_every = 0;  // ... after each interval of this length; 0: never
};

/// The times of such a process and of bursts, merged. All are 0 if there is neither a rate nor a burst.
class ArrivalTimes {
 public:
  /// Throws Error if a value is invalid.
  explicit ArrivalTimes(const ArrivalConfig& config);
  /// Not before the time returned last.
  Nanos next();

 private:
  bool has_bursts() const { return config_.burst > 0 && config_.burst_every > 0; }
  void draw_next();
  /// The time at which it has been on for so long.
  Nanos after_phases(Nanos on);

  ArrivalConfig config_;
  SplitMix64 random_;
  SplitMix64 phases_;
  Nanos last_single_ = 0;  // on the clock that stands still while it is off
  Nanos on_until_ = 0;     // the end of the present phase, on that clock
  Nanos off_before_ = 0;   // the length of the off phases so far
  Nanos single_at_;
  Nanos burst_at_;
  uint32_t in_burst_ = 0;
};

}  // namespace quire::sim
