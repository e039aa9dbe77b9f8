#pragma once

#include <cstdint>

#include "base/ids.h"

// The causes of decisions, for a listener that explains them. Causes decide nothing and are not part of the
// digest: a run makes the same decisions with and without a listener.
namespace quire::control {

/// The ground on which one sequence is admitted before another, or is preempted for it.
enum class Ground : uint8_t {
  // Of a waiting sequence; `value` is what the scheduling policy compares.
  kArrival,    // its arrival only
  kProtected,  // preempted so often that it is first under any policy that compares
  kStarted,    // slo: it has generated tokens, and is first
  kPassed,     // lpm: so many later arrivals were admitted before it that it is first
  kWork,       // srpt; value: the time that it is expected to take, ns
  kDeadline,   // slo; value: the latest moment at which it must begin, ns
  kPriority,   // value: SeqSpec::priority
  kShare,      // fair; value: tokens served to its tenant
  kCached,     // lpm; value: rows found in the prefix cache
  // Of a victim.
  kNothingLeft,   // it has nothing left to compute, so it loses nothing
  kLastAdmitted,  // of the candidates, it was admitted last
  kLowest,        // of the candidates, it has the lowest priority; value: SeqSpec::priority
  kLeastDone,     // of the candidates, it has computed least; value: tokens
};

/// What the scheduling policy compares of one sequence.
struct Standing {
  Ground ground = Ground::kArrival;
  int64_t value = 0;
};

enum class CauseKind : uint8_t {
  kFirst,      // `seq` is first in line, by `ground` and `value`. Reported when the first in line changes
  kBehind,     // `seq` comes after the first, by its own ground and value. Reported when that order changes
  kShort,      // `seq`, first in line, needs `a` blocks; of the `b` available, `value` must stay available
  kVictim,     // `seq` is preempted next, by `ground` and `value`: `other` (maybe `seq`) needs a block
  kNotMoved,   // the K/V of the victim `seq` is not moved to the host: it has `a` blocks, `b` are free there,
               // and if that is enough, recomputation is expected to be quicker
  kPublished,  // block `a` is published in the prefix index, until it is evicted
  kFollows,    // `seq` is passed over, because `other` computes the next block of its tokens
};

struct Cause {
  CauseKind kind = CauseKind::kFirst;
  Ground ground = Ground::kArrival;
  SeqId seq = kNoSeq;
  SeqId other = kNoSeq;
  uint32_t a = 0;
  uint32_t b = 0;
  int64_t value = 0;
};

/// Takes causes in order, each before the decision that follows from it. Called in the thread that calls the
/// scheduler.
class CauseSink {
 public:
  virtual ~CauseSink() = default;
  virtual void take(const Cause& cause) = 0;
};

}  // namespace quire::control
