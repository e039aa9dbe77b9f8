#pragma once

#include <cstdint>

#include "base/ids.h"

// What a decision went by, told to whoever explains decisions. Causes decide nothing and are no part of the
// digest: a run with a listener and one without are the same run.
namespace quire::control {

/// By what one sequence comes before another, or gives way to it.
enum class Ground : uint8_t {
  // Of a sequence that waits; value is what the scheduling policy compares.
  kArrival,    // nothing but its arrival
  kProtected,  // preempted so often that it comes first under any policy that compares
  kStarted,    // slo: it has generated tokens, and comes first
  kPassed,     // lpm: so many that arrived later were admitted before it that it comes first
  kWork,       // srpt: value: the time that it is expected to take, ns
  kDeadline,   // slo: value: the last moment to begin by, ns
  kPriority,   // value: SeqSpec::priority
  kShare,      // fair: value: tokens that its tenant was served
  kCached,     // lpm: value: rows of blocks found in the prefix cache
  // Of a victim.
  kNothingLeft,   // it has nothing left to compute, and loses nothing
  kLastAdmitted,  // of those that may give way it was admitted last
  kLowest,        // it has the lowest priority of them; value: SeqSpec::priority
  kLeastDone,     // it has computed least of them; value: tokens
};

/// What the scheduling policy goes by, of one sequence.
struct Standing {
  Ground ground = Ground::kArrival;
  int64_t value = 0;
};

enum class CauseKind : uint8_t {
  kFirst,     // `seq` is first in line, by `ground` and `value`. Told when another is, and when it is again
  kBehind,    // `seq` was compared and comes after it, by its own `ground` and `value`. Told when what
              // decides between the two changes: a ground, or which value is less
  kShort,     // `seq` is first in line and not admitted: it needs `a` blocks, `b` are available, and `value`
              // of them must stay so
  kVictim,    // `seq` is preempted next, so that `other` (maybe `seq`) has a block; why it: `ground`, `value`
  kNotMoved,  // K/V of the victim `seq` is not moved to the host: it has `a` blocks, and `b` are free there;
              // where that is enough, computing it again is expected to be quicker
  kPublished,  // block `a` is in the prefix index from now on, until it is evicted
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

/// Takes causes in order, each before the decision that follows from it; called by whoever drives the
/// scheduler, in its thread.
class CauseSink {
 public:
  virtual ~CauseSink() = default;
  virtual void take(const Cause& cause) = 0;
};

}  // namespace quire::control
