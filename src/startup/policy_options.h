#pragma once

#include <optional>
#include <string>

#include "control/config.h"

namespace quire::startup {

/// The scheduler's policies, as the command line has them.
struct PolicyOptions {
  control::SchedulingKind scheduling = control::SchedulingKind::kFcfs;
  control::BatchingKind batching = control::BatchingKind::kContinuous;
  control::VictimKind victim = control::VictimKind::kLastAdmitted;
  control::PreemptionKind preemption = control::PreemptionKind::kRecompute;
  control::EvictionKind eviction = control::EvictionKind::kQueueLru;
  std::optional<std::string> swap_space;
  std::optional<double> priority_aging;  // seconds
  double watermark = 1;                  // percent
  bool admit_eagerly = false;
  bool admit_while_preempting = false;
};

/// Throws Error naming a flag that has no effect without another one.
void check_policy_options(const PolicyOptions& options, bool prefix_caching);

/// Applies them, with a host pool for blocks of `block_bytes` bytes if there is swapping. Throws Error if the
/// host pool has no block.
void apply_policy_options(const PolicyOptions& options, uint64_t block_bytes,
                          control::SchedulerConfig& config);

}  // namespace quire::startup
