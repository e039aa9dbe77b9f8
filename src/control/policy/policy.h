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

/// The order in which waiting sequences come in. A comparison, by rank; all else is the scheduler's.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  /// Lower comes in first, equals in order of arrival. Does not depend on the time.
  virtual int64_t rank(const Sequence& seq) const = 0;
  /// What `rank`, which it gave, goes by; to explain it, not to decide.
  virtual Standing standing(const Sequence& seq, int64_t rank) const = 0;
  /// So many of those waiting are compared, the earliest arrived.
  virtual size_t horizon() const { return SIZE_MAX; }

  // News, for policies that count.
  virtual void queued(const Sequence& /*seq*/) {}    // it waits: new, or preempted
  virtual void dequeued(const Sequence& /*seq*/) {}  // it waits no longer
  virtual void computes(const Sequence& /*seq*/, uint32_t /*tokens*/) {}
  virtual void ended(const Sequence& /*seq*/) {}
};

/// What a policy may go by besides the sequences; all outlives it.
struct PolicyInputs {
  const CostHints& costs;
  Nanos aging;  // SchedulerConfig::priority_aging
  const PrefixCache& cache;
};

// One row a policy: its enumerator, its name on the command line, its maker. A new policy is a file in this
// folder that defines its maker, and a row here.
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
