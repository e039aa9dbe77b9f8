#pragma once

#include <cstdint>

namespace quire::sim {

/// Streams of random numbers of a workload (keyed_random), which must not meet.
enum WorkloadStream : uint64_t {
  kArrivals = 1,
  kRequest = 2,
  kPiece = 3,
  kOwnTokens = 4,
  kService = 5,
  kPhases = 6,
  kTurns = 7,
  kThinkTimes = 8,
};

}  // namespace quire::sim
