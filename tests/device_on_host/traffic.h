#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "tests/device_on_host/memory.h"

// What a kernel's accesses cost a device's memory, counted by warp: the n-th accesses of its lanes at one
// place of the code are taken for one instruction.
namespace quire::test::fibers {

/// One access of one lane.
struct LaneAccess {
  Access access;
  uint32_t block = 0;
  uint16_t thread = 0;
  uint16_t barriers = 0;  // that it had passed
  uint32_t warp_syncs = 0;
  bool shared = false;

  uint32_t lane() const { return thread % kLanes; }
};

/// Of shared memory: 32 banks of 4 bytes; lanes that want different words of one bank are served one after
/// another. An instruction of 8 or 16 bytes a lane is served by halves or quarters of a warp.
/// Of global memory: it moves sectors of 32 bytes.
struct Traffic {
  size_t shared_accesses = 0;  // instructions
  size_t bank_conflicts = 0;   // further turns that they took
  size_t global_accesses = 0;
  size_t sectors = 0;         // that they moved
  size_t needed_sectors = 0;  // that as many bytes without gaps would take

  LaneAccess worst_bank = {};  // of the instruction with most conflicts
  size_t worst_conflicts = 0;
  LaneAccess worst_sector = {};  // and of that with most sectors beyond those it needs
  size_t worst_excess = 0;

  /// Adds what one warp did in one block, in the order in which it did it. Reorders `accesses`.
  void add(std::vector<LaneAccess>& accesses);

 private:
  void add_shared(const LaneAccess* begin, const LaneAccess* end);
  void add_global(const LaneAccess* begin, const LaneAccess* end);
};

/// What a kernel may cost, by the name of its launch.
struct TrafficLimit {
  const char* kernel;
  double conflicts;  // for each access of shared memory
  double sectors;    // for each that is needed
};

/// The row of a kernel in the table of limits, or the one for all others: no conflicts, no sector too many.
const TrafficLimit& traffic_limit(const char* kernel);

}  // namespace quire::test::fibers
