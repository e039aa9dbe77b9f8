#include "startup/policy_options.h"

#include <cmath>
#include <cstdint>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"

namespace quire::startup {

void check_policy_options(const PolicyOptions& options, bool prefix_caching) {
  if (options.swap_space && options.preemption == control::PreemptionKind::kRecompute) {
    throw Error("--swap-space: nothing is swapped out without --preemption-mode swap or auto");
  }
  if (options.priority_aging && options.scheduling != control::SchedulingKind::kPriority) {
    throw Error("--priority-aging: no priorities count without --scheduling-policy priority");
  }
  if (prefix_caching) return;
  if (options.scheduling == control::SchedulingKind::kLpm) {
    throw Error(
        "--scheduling-policy: lpm looks for prefixes in the cache that --no-enable-prefix-caching turns off");
  }
  if (options.eviction != PolicyOptions().eviction) {
    throw Error(fmt::format("--eviction-policy: {} has nothing to evict with --no-enable-prefix-caching",
                            control::name(options.eviction)));
  }
}

void apply_policy_options(const PolicyOptions& options, uint64_t block_bytes,
                          control::SchedulerConfig& config) {
  config.scheduling = options.scheduling;
  config.batching = options.batching;
  config.victim = options.victim;
  config.preemption = options.preemption;
  config.eviction = options.eviction;
  config.admit_eagerly = options.admit_eagerly;
  config.admit_while_preempting = options.admit_while_preempting;
  if (options.priority_aging) config.priority_aging = static_cast<Nanos>(*options.priority_aging * 1e9);
  config.watermark_bp = static_cast<uint32_t>(std::lround(options.watermark * 100));
  if (options.preemption == control::PreemptionKind::kRecompute) return;
  std::string space = options.swap_space.value_or("1GiB");
  if (space.find_first_not_of("0123456789.") == std::string::npos) space += "GiB";  // as vLLM has it
  const uint64_t blocks = parse_bytes(space, "--swap-space") / block_bytes;
  if (blocks == 0 || blocks > INT32_MAX) {
    throw Error(
        fmt::format("--swap-space: {} makes {} blocks of {}", space, blocks, human_bytes(block_bytes)));
  }
  config.num_host_blocks = static_cast<uint32_t>(blocks);
}

}  // namespace quire::startup
