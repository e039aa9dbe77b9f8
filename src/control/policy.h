#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "base/ids.h"

namespace quire {

struct Sequence;
class PrefixCache;

/// Who comes in first of those that wait.
enum class SchedulingKind : uint8_t { kFcfs, kSrpt, kSlo, kPriority, kFair, kLpm };
/// Who gives way when there are no blocks left.
enum class VictimKind : uint8_t { kLastAdmitted, kLowestPriority, kLeastProgress };
/// What becomes of the victim's K/V: computed again, moved to the host and back, or what should be quicker.
enum class PreemptionKind : uint8_t { kRecompute, kSwap, kAuto };
/// Whether sequences come in as others end, or only when all have ended (to compare with).
enum class BatchingKind : uint8_t { kContinuous, kStatic };

// Their names on the command line, in the order of the enumerators.
inline constexpr std::string_view kSchedulingNames[] = {"fcfs", "srpt", "slo", "priority", "fair", "lpm"};
inline constexpr std::string_view kVictimNames[] = {"last", "priority", "least-progress"};
inline constexpr std::string_view kPreemptionNames[] = {"recompute", "swap", "auto"};
inline constexpr std::string_view kBatchingNames[] = {"continuous", "static"};

/// What the control plane believes that things cost; only decides between ways that are all correct.
struct CostHints {
  Nanos prefill_token = 5'000'000;
  Nanos decode_token = 40'000'000;  // of one sequence, in a batch
  Nanos swap_block = 200'000;       // one block to the host, or back
};

/// The order in which waiting sequences come in. A comparison, by rank; all else is the scheduler's.
class SchedulingPolicy {
 public:
  virtual ~SchedulingPolicy() = default;
  /// Lower comes in first, equals in order of arrival. Does not depend on the time.
  virtual int64_t rank(const Sequence& seq) const = 0;
  /// So many of those waiting are compared, the earliest arrived.
  virtual size_t horizon() const { return SIZE_MAX; }

  // News, for policies that count.
  virtual void queued(const Sequence& /*seq*/) {}    // it waits: new, or preempted
  virtual void dequeued(const Sequence& /*seq*/) {}  // it waits no longer
  virtual void computes(const Sequence& /*seq*/, uint32_t /*tokens*/) {}
  virtual void ended(const Sequence& /*seq*/) {}
};

/// - fcfs: first come, first served.
/// - srpt: the shortest remaining time, by CostHints. The length of an answer is SeqSpec::expected_tokens, or
///   else the mean of the last answers.
/// - slo: the least slack to the deadline of its first token; a sequence that has started comes before all.
/// - priority: SeqSpec::priority, lower first. To wait for `aging` (at most 9,000 s) counts as much as one
///   level, so nobody starves.
/// - fair: the tenant that was served least (virtual token counter of Sheng et al. 2023). A prompt token that
///   must be computed counts 1, when its sequence first comes in; a generated one 2. A tenant that comes back
///   starts no lower than the least served of those waiting.
/// - lpm: the longest prefix that is cached (Zheng et al. 2024), of the 64 that came first; one that 32
///   others have passed comes before all.
/// `cache` must outlive the policy.
std::unique_ptr<SchedulingPolicy> make_policy(SchedulingKind kind, const CostHints& costs, Nanos aging,
                                              const PrefixCache& cache);

}  // namespace quire
