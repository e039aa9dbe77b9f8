#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/ids.h"

namespace quire::sim {

class Simulation;

/// What a scheduler had during a span of time, and what happened at the end of the span.
struct TimelineSpan {
  Nanos from = 0;
  Nanos to = 0;
  double running = 0;  // sequences
  double waiting = 0;  // sequences
  double held = 0;     // the share of the pool's blocks that sequences hold
  double cached = 0;   // the share of those that are cached
  uint64_t queried_tokens = 0;
  uint64_t hit_tokens = 0;
  uint64_t preemptions = 0;
  uint64_t output_tokens = 0;
};

/// The spans of a run in at most kMostBuckets buckets of equal length, whatever the run's length: when a run
/// outgrows them, each two become one. Not thread-safe.
class Timeline {
 public:
  static constexpr size_t kMostBuckets = 400;

  /// Of one bucket. The first four are sums over the time of the spans in it, in nanoseconds times what the
  /// span has.
  struct Bucket {
    double running = 0;
    double waiting = 0;
    double held = 0;
    double cached = 0;
    Nanos covered = 0;  // by spans
    double most_waiting = 0;
    uint64_t queried_tokens = 0;
    uint64_t hit_tokens = 0;
    uint64_t preemptions = 0;
    uint64_t output_tokens = 0;

    double mean(double Bucket::*sum) const {
      return covered > 0 ? this->*sum / static_cast<double>(covered) : 0;
    }
  };

  /// REQUIRES: 0 <= span.from <= span.to, and no bucket of a span before is later than span.from.
  void add(const TimelineSpan& span);

  /// The length of a bucket.
  Nanos length() const { return length_; }
  /// The first begins at time 0.
  const std::vector<Bucket>& buckets() const { return buckets_; }

 private:
  Bucket& at(Nanos time);
  void merge();

  Nanos length_ = 1'000'000;
  std::vector<Bucket> buckets_;
};

/// The timeline of a simulation.
class SimulationTimeline {
 public:
  /// To be called after each step.
  void take(const Simulation& simulation);
  const Timeline& timeline() const { return timeline_; }

 private:
  Timeline timeline_;
  Nanos end_ = 0;       // of the last step
  Nanos busy_ = 0;      // SimulationTotals::busy, then
  double cached_ = 0;   // then
  TimelineSpan total_;  // what has happened so far
};

}  // namespace quire::sim
