#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/ids.h"
#include "control/cause.h"
#include "control/costs.h"

namespace quire::control {

struct Sequence;
class PrefixCache;

/// The order in which waiting sequences are admitted: a comparison by rank. All other decisions are the
/// scheduler's.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  /// The lowest rank is admitted first, equal ranks in order of arrival. Does not depend on the time.
  virtual int64_t rank(const Sequence& seq) const = 0;
  /// What `rank`, a result of rank(), is based on; for explanations, not for decisions.
  virtual Standing standing(const Sequence& seq, int64_t rank) const = 0;
  /// How many waiting sequences are compared: the earliest arrivals.
  virtual size_t horizon() const { return SIZE_MAX; }

  // Notifications, for policies that keep counts.
  virtual void queued(const Sequence& /*seq*/) {}    // it waits, because it is new or was preempted
  virtual void dequeued(const Sequence& /*seq*/) {}  // it waits no longer
  virtual void computes(const Sequence& /*seq*/, uint32_t /*tokens*/) {}
  virtual void ended(const Sequence& /*seq*/) {}
};

/// What a policy may use besides the sequences; all of it outlives the policy.
struct PolicyInputs {
  const CostHints& costs;
  Nanos aging;  // SchedulerConfig::priority_aging
  const PrefixCache& cache;
};

// One row per policy: its enumerator, its name on the command line, its factory function. A new policy is a
// file in this folder that defines its factory function, and a row here.
#define QUIRE_SCHEDULING_POLICIES(ROW)      \
  ROW(kFcfs, "fcfs", make_fcfs)             \
  ROW(kSrpt, "srpt", make_srpt)             \
  ROW(kSlo, "slo", make_slo)                \
  ROW(kPriority, "priority", make_priority) \
  ROW(kFair, "fair", make_fair)             \
  ROW(kLpm, "lpm", make_lpm)

#define QUIRE_ROW(kind, name, make) kind,
enum class SchedulingKind : uint8_t { QUIRE_SCHEDULING_POLICIES(QUIRE_ROW) };
#undef QUIRE_ROW
#define QUIRE_ROW(kind, name, make) name,
inline constexpr std::string_view kSchedulingNames[] = {QUIRE_SCHEDULING_POLICIES(QUIRE_ROW)};
#undef QUIRE_ROW
#define QUIRE_ROW(kind, name, make) std::unique_ptr<SchedulingPolicy> make(const PolicyInputs& in);
QUIRE_SCHEDULING_POLICIES(QUIRE_ROW)
#undef QUIRE_ROW

inline std::unique_ptr<SchedulingPolicy> make_policy(SchedulingKind kind, const PolicyInputs& in) {
#define QUIRE_ROW(kind, name, make) make,
  constexpr std::unique_ptr<SchedulingPolicy> (*kMakers[])(const PolicyInputs&) = {
      QUIRE_SCHEDULING_POLICIES(QUIRE_ROW)};
#undef QUIRE_ROW
  return kMakers[static_cast<size_t>(kind)](in);
}

}  // namespace quire::control
