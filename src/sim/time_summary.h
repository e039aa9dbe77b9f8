#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "sim/fixed_point.h"

namespace quire::sim {

/// The lowest value that p percent of some times, in nanoseconds, do not exceed (nearest rank). All 0 without
/// times.
struct Percentiles {
  Nanos mean = 0;  // rounded down
  Nanos p50 = 0;
  Nanos p90 = 0;
  Nanos p99 = 0;
  Nanos max = 0;
};
Percentiles percentiles(std::vector<Nanos> times);

/// The percentiles of times that are told one by one. They are exact up to kMostExact times. Of more it keeps
/// only how many lie in ranges, of which none is wider than a 1024th of its lowest time, and the percentiles
/// but for `max` are within 0.1 % of the exact ones (within 1 ns below 1 us); `mean` and `max` stay exact. So
/// it needs at most 8 bytes for each time, and 8 kB for each power of two that the times span. Not
/// thread-safe.
class TimeSummary {
 public:
  static constexpr size_t kMostExact = 65'536;

  /// REQUIRES: time >= 0; fewer than 2^32 times.
  void add(Nanos time);
  Percentiles percentiles() const;

 private:
  struct Range {
    uint32_t number = 0;
    uint32_t count = 0;
  };
  void count(Nanos time);
  Nanos at_rank(uint64_t rank) const;

  std::vector<Nanos> times_;   // all, while there are no ranges
  std::vector<Range> ranges_;  // that have times, in order
  uint64_t count_ = 0;
  int128 sum_ = 0;
  Nanos max_ = 0;
};

}  // namespace quire::sim
