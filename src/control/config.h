#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "control/costs.h"
#include "control/eviction/eviction.h"
#include "control/policy/policy.h"

namespace quire::control {

/// Who gives way when there are no blocks left.
enum class VictimKind : uint8_t { kLastAdmitted, kLowestPriority, kLeastProgress };
/// What becomes of the victim's K/V: computed again, moved to the host and back, or what should be quicker.
enum class PreemptionKind : uint8_t { kRecompute, kSwap, kAuto };
/// Whether sequences come in as others end, or only when all have ended (to compare with).
enum class BatchingKind : uint8_t { kContinuous, kStatic };

// Their names on the command line, in the order of the enumerators.
inline constexpr std::string_view kVictimNames[] = {"last", "priority", "least-progress"};
inline constexpr std::string_view kPreemptionNames[] = {"recompute", "swap", "auto"};
inline constexpr std::string_view kBatchingNames[] = {"continuous", "static"};

struct SchedulerConfig {
  uint32_t num_blocks = 0;
  uint32_t block_size = 16;
  /// One a K/V group: the sliding window of its layers in tokens, 0 = they see all.
  std::vector<uint32_t> kv_windows = {0};
  uint32_t max_num_seqs = 64;             // slots
  uint32_t max_num_batched_tokens = 512;  // most tokens of a step, >= max_num_seqs
  /// What each token before it adds to the cost of a prompt's token, in millionths: behind a long context the
  /// budget is for fewer tokens, down to a quarter.
  uint32_t context_cost = 0;
  uint32_t max_model_len = 0;
  uint32_t max_waiting = 1024;  // beyond: kQueueFull
  /// Blocks that an admission leaves free, so that those running can grow before somebody must be preempted.
  /// In 1/10,000 of num_blocks, rounded up. May exceed the pool: then one sequence runs at a time.
  uint32_t watermark_bp = 100;
  bool enable_prefix_caching = true;
  bool admit_eagerly = false;           // with a block for it; this and the next only to compare with
  bool admit_while_preempting = false;  // in a step that preempts

  SchedulingKind scheduling = SchedulingKind::kFcfs;
  BatchingKind batching = BatchingKind::kContinuous;
  VictimKind victim = VictimKind::kLastAdmitted;
  PreemptionKind preemption = PreemptionKind::kRecompute;
  uint32_t num_host_blocks = 0;  // of the pool for swapping; a victim that does not fit is computed again
  Nanos priority_aging = 5'000'000'000;  // see make_policy; >= 1
  CostHints costs;
  EvictionKind eviction = EvictionKind::kQueueLru;
};

}  // namespace quire::control
