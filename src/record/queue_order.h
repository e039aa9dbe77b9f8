#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "control/kv/prefix_cache.h"
#include "control/scheduler.h"
#include "record/run_state.h"

namespace quire {

/// Why one waiting sequence comes in before another.
struct Precedence {
  enum class Kind : uint8_t {
    kUnknown,        // the record does not tell
    kEarlier,        // fcfs: it came earlier
    kProtected,      // it was preempted so often that it goes first under any policy
    kBothProtected,  // so was the other, which came later
    kStarted,        // slo: it has generated tokens
    kBothStarted,    // so has the other, which came later
    kAhead,          // by the policy's own measure
    kEqual,          // by that measure they are equal, and it came earlier
    kSamePriority,   // priority: it came earlier
    kAged,           // priority: it has waited so much longer that this outweighs its lower priority
    kSameTenant,     // fair: it came earlier
    kPassed,         // lpm: so many that came later were let in before it that it goes first
  };
  Kind kind = Kind::kUnknown;
  // What was compared: priorities, or (fair) what the tenants were served.
  int64_t first = 0;
  int64_t own = 0;
  uint64_t first_tenant = 0;
  uint64_t own_tenant = 0;
};

/// Follows the waiting sequences of a run with the policy that decided, so that any two can be compared at
/// any moment. Of lpm it knows no more than the order of arrival and who was passed by: what is cached no
/// record says.
class QueueOrder {
 public:
  explicit QueueOrder(const SchedulerConfig& config);

  /// Before `state` takes the event in.
  void take(const RunEvent& event, const RunState& state);
  /// Why `first` comes in before `own`, given that it does; both wait.
  Precedence compare(SeqId first, SeqId own) const;

 private:
  void take(const Decision& decision);
  void admit(Sequence& seq, uint32_t computed);
  void finish(Sequence& seq);

  SchedulerConfig config_;
  PrefixCache cache_;                         // empty: make_policy wants one
  std::unique_ptr<SchedulingPolicy> policy_;  // nullptr: fcfs, lpm
  std::unordered_map<SeqId, Sequence> sequences_;
  std::optional<SeqSpec> added_;  // until the decision that takes it in; its prompt in `prompt_`
  uint32_t prompt_ = 0;
  uint32_t given_up_ = 0;  // tokens, by the last that was preempted
  uint64_t arrivals_ = 0;
};

}  // namespace quire
