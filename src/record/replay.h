#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/run_record.h"

// What came of making a recorded run again; sim/replay.h does it.
namespace quire::record {

struct ReplayDifference {
  uint64_t number = 0;                        // of the decision, from 1
  uint64_t step = 0;                          // 0: before the first
  std::optional<control::Decision> recorded;  // nullopt: none more, before the next input
  std::optional<control::Decision> made;      // the same
};
struct Replay {
  uint64_t steps = 0;
  uint64_t decisions = 0;            // of the new run, which ends where the first differs
  uint64_t digest = 0;               // of the new run
  std::optional<uint64_t> recorded;  // what the file says; nullopt if it was cut off
  std::optional<ReplayDifference> first_difference;
  bool same() const { return recorded == digest && !first_difference; }
};

/// "decision 1,234, in step 57, differs: the log has "allocate block 14 (request 12)", replayed it is ...".
std::string difference_text(const ReplayDifference& difference);

}  // namespace quire::record
