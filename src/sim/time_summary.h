#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"
#include "sim/fixed_point.h"

namespace quire::sim {

/// The lowest value that p percent of some times, in nanoseconds, do not exceed (nearest rank). All 0 without
/// times; whoever shows them says then that there are none (`any`).
struct Percentiles {
  Nanos mean = 0;  // rounded down
  Nanos p50 = 0;
  Nanos p90 = 0;
  Nanos p99 = 0;
  Nanos max = 0;
  bool any = false;  // whether there were times
};
Percentiles percentiles(std::vector<Nanos> times);

/// The percentiles of times that are told one by one. They are exact up to kMostExact times, or until
/// coarsen(). Then it keeps only how many times lie in which range, no range being wider than a 1024th of its
/// lowest time: `mean` and `max` stay exact, and the others are within 0.1 % of the exact ones. It needs 8
/// bytes for each time and for each range that has one; there are 1024 ranges for each power of two. Not
/// thread-safe.
class TimeSummary {
 public:
  static constexpr size_t kMostExact = 65'536;

  /// REQUIRES: time >= 0; fewer than 2^32 times.
  void add(Nanos time);
  /// Keeps no more single times.
  void coarsen();
  Percentiles percentiles() const;

 private:
  struct Range {
    uint32_t number = 0;
    uint32_t count = 0;
  };
  void count(Nanos time);
  Nanos at_rank(uint64_t rank) const;

  bool is_coarse_ = false;
  std::vector<Nanos> times_;   // all, unless it is coarse
  std::vector<Range> ranges_;  // if it is: those that have times, in order
  uint64_t count_ = 0;
  int128 sum_ = 0;
  Nanos max_ = 0;
};

}  // namespace quire::sim
