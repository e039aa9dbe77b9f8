#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "record/run_record.h"

// The result of replaying a recorded run (sim/replay.h).
namespace quire::record {

struct ReplayDifference {
  uint64_t number = 0;                        // number of the decision, from 1
  uint64_t step = 0;                          // 0: before the first step
  std::optional<control::Decision> recorded;  // nullopt: no further decision before the next input
  std::optional<control::Decision> made;      // the same, in the replay
};
struct Replay {
  /// Whether the log has its beginning. Without it nothing is made again: the log was only read to its end,
  /// which checks its checksums and its form.
  bool has_beginning = true;
  uint64_t steps_before = 0;  // before the log begins
  uint64_t steps = 0;
  uint64_t decisions = 0;            // in the replay, which ends at the first difference
  uint64_t digest = 0;               // of the replay
  std::optional<uint64_t> recorded;  // from the file; nullopt if it was cut off
  std::optional<ReplayDifference> first_difference;
  std::optional<uint64_t> other_cache;  // the step after which a part begins with another prefix index
  bool same() const { return recorded == digest && !differs(); }
  bool differs() const { return first_difference || other_cache; }
};

/// The first difference, as text. REQUIRES: there is one.
std::string difference_text(const Replay& replay);
/// "decision 1,234, in step 57, differs: the log has "allocate block 14 (request 12)", replayed it is ...".
std::string difference_text(const ReplayDifference& difference);

}  // namespace quire::record
