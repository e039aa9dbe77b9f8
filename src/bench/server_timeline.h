#pragma once

#include <optional>
#include <string_view>

#include "base/ids.h"
#include "sim/timeline.h"

namespace quire::bench {

/// What a server under load had over time, from readings of its metrics under vLLM's names, which are
/// quire's too. What other servers call otherwise is left out.
class ServerTimeline {
 public:
  /// The text of /metrics `at` nanoseconds from the start of the load; each later than the one before. What
  /// happened before the first reading does not count.
  void take(Nanos at, std::string_view metrics);

  /// Without buckets if no reading had the length of the queue.
  const sim::Timeline& timeline() const { return timeline_; }

 private:
  struct Reading {
    Nanos at = 0;
    double running = 0;
    double waiting = 0;
    double held = 0;
    double queried = 0;
    double hit = 0;
    double preempted = 0;
    double output = 0;
  };
  std::optional<Reading> last_;
  sim::Timeline timeline_;
};

}  // namespace quire::bench
