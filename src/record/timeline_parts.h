#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "control/decision_log.h"
#include "record/run_timeline.h"

// What is kept of a run for a RunTimeline until it is encoded; sequences by their number in the whole run.
namespace quire::record {

inline constexpr size_t kNoSequence = SIZE_MAX;
inline constexpr uint32_t kNoneAhead = UINT32_MAX;

/// A change of a pool.
struct Change {
  uint32_t block = 0;
  RunTimeline::BlockChange kind = RunTimeline::kTake;
  size_t seq = 0;
};

/// The changes of a pool, cut into steps.
struct Changes {
  std::vector<Change> list;
  std::vector<size_t> ends;  // of each step, in the list
  void end_step() { ends.push_back(list.size()); }
};

struct Event {
  control::DecisionKind kind = control::DecisionKind::kAdd;
  uint32_t a = 0;
  uint32_t b = 0;
  size_t seq = kNoSequence;
  uint32_t cause = 0;  // of a preemption: the number of its sentence
};

/// The events, cut into steps.
struct Events {
  std::vector<Event> list;
  std::vector<size_t> ends;  // of each step, in the list
  void end_step() { ends.push_back(list.size()); }
};

/// The state of a sequence in a step.
struct Look {
  Phase phase = Phase::kQueued;
  control::WaitReason waits = control::WaitReason::kNone;
  uint32_t behind = kNoneAhead;
  uint32_t cause = 0;  // with kOrder: the number of its sentence
  bool operator==(const Look&) const = default;
};
struct LookHash {
  size_t operator()(const Look& look) const {
    const uint64_t kind = static_cast<uint64_t>(look.phase) * 16 + static_cast<uint64_t>(look.waits);
    return std::hash<uint64_t>{}((kind << 57U) ^ (uint64_t{look.behind} << 25U) ^ look.cause);
  }
};

/// Equal steps of a sequence. Small, because a run in which the first in line changes has as many of them as
/// steps times waiting sequences.
struct Segment {
  uint32_t steps = 0;
  uint32_t look = 0;  // number of the look
};
/// Those of one sequence, in order without gaps.
struct Segments {
  uint64_t from = 0;  // step
  std::vector<Segment> list;
};

inline bool has_seq(RunTimeline::BlockChange kind) { return kind <= RunTimeline::kDropToCache; }

}  // namespace quire::record
