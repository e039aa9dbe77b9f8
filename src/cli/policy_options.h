#pragma once

#include <string>

#include "control/scheduler.h"

namespace CLI {
class App;
}

namespace quire::cli {

/// The scheduler's policies, as flags.
struct PolicyOptions {
  SchedulingKind scheduling = SchedulingKind::kFcfs;
  BatchingKind batching = BatchingKind::kContinuous;
  VictimKind victim = VictimKind::kLastAdmitted;
  PreemptionKind preemption = PreemptionKind::kRecompute;
  EvictionKind eviction = EvictionKind::kLru;
  std::string swap_space = "1GiB";
  double priority_aging = 5;  // seconds
  double watermark = 1;       // percent
};
void add_policy_options(CLI::App& command, PolicyOptions& options);

/// Sets them, with a host pool of blocks of so many bytes if there is swapping.
void apply_policy_options(const PolicyOptions& options, uint64_t block_bytes, SchedulerConfig& config);

}  // namespace quire::cli
