#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "control/costs.h"
#include "control/eviction/eviction.h"
#include "control/policy/policy.h"

namespace quire::control {

/// Which sequence is preempted when there are no blocks left.
enum class VictimKind : uint8_t { kLastAdmitted, kLowestPriority, kLeastProgress };
/// What happens to the victim's K/V: it is recomputed, moved to the host and back, or whichever should be
/// quicker.
enum class PreemptionKind : uint8_t { kRecompute, kSwap, kAuto };
/// Whether sequences are admitted as others end, or only when all have ended (for comparison).
enum class BatchingKind : uint8_t { kContinuous, kStatic };

// Their names on the command line, in the order of the enumerators.
inline constexpr std::string_view kVictimNames[] = {"last", "priority", "least-progress"};
inline constexpr std::string_view kPreemptionNames[] = {"recompute", "swap", "auto"};
inline constexpr std::string_view kBatchingNames[] = {"continuous", "static"};

struct SchedulerConfig {
  uint32_t num_blocks = 0;
  uint32_t block_size = 16;
  /// One per K/V group: the sliding window of its layers in tokens; 0: full attention.
  std::vector<uint32_t> kv_windows = {0};
  uint32_t max_num_seqs = 64;             // slots
  uint32_t max_num_batched_tokens = 512;  // the most tokens of a step, >= max_num_seqs
  /// By how much each preceding token raises the cost of a prompt token, in millionths: after a long context
  /// the budget allows fewer tokens, down to a quarter.
  uint32_t context_cost = 0;
  uint32_t max_model_len = 0;
  uint32_t max_waiting = 1024;  // not counting one for each free slot; beyond that: kQueueFull
  /// The blocks that an admission must leave available, so that running sequences can grow before one must be
  /// preempted. In 1/10,000 of num_blocks, rounded up. May exceed the pool: then one sequence runs at a time.
  uint32_t watermark_bp = 100;
  bool enable_prefix_caching = true;
  bool admit_eagerly = false;  // as soon as one block is available; this and the next are for comparison
  bool admit_while_preempting = false;  // in a step that preempts

  SchedulingKind scheduling = SchedulingKind::kFcfs;
  BatchingKind batching = BatchingKind::kContinuous;
  VictimKind victim = VictimKind::kLastAdmitted;
  PreemptionKind preemption = PreemptionKind::kRecompute;
  uint32_t num_host_blocks = 0;          // size of the host pool; a victim that does not fit is recomputed
  Nanos priority_aging = 5'000'000'000;  // see make_policy; >= 1
  CostHints costs;
  EvictionKind eviction = EvictionKind::kQueueLru;
};

}  // namespace quire::control
