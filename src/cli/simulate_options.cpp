#include "cli/simulate_options.h"

#include <algorithm>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/policy_options.h"
#include "cli/sim_options.h"

namespace quire::cli {
namespace {

/// Of K/V, to say what a block takes of --swap-space: 32 layers with 8 K/V heads of 128 in bf16 (Llama 3 8B).
constexpr uint64_t kTokenBytes = 131072;

control::SchedulerConfig scheduler_config(const SimulateOptions& options,
                                          const backend::sim::CostModel& cost) {
  const auto pick = [&](const std::optional<uint32_t>& given, uint32_t demo, uint32_t otherwise) {
    return given.value_or(options.demo ? demo : otherwise);
  };
  control::SchedulerConfig config;
  config.block_size = pick(options.block_size, 16, 16);
  config.num_blocks = pick(options.num_blocks, 128, 4096);
  config.max_num_seqs = pick(options.max_num_seqs, 24, 64);
  config.max_num_batched_tokens = pick(options.max_num_batched_tokens, 192, 2048);
  const uint64_t pool = uint64_t{config.num_blocks} * config.block_size;
  config.max_model_len =
      options.max_model_len.value_or(static_cast<uint32_t>(std::min<uint64_t>(pool, UINT32_MAX)));
  config.max_waiting = options.max_waiting.value_or(UINT32_MAX);
  config.enable_prefix_caching = options.enable_prefix_caching;
  config.kv_windows = {options.sliding_window};
  startup::apply_policy_options(options.policies, kTokenBytes * config.block_size, config);
  config.costs = cost.hints(config.max_num_seqs);
  return config;
}

void add_scheduler_options(const Flags& command, SimulateOptions& options) {
  const char* group = "Memory and batching";
  const auto add = [&](const char* name, auto& value, const char* help, int64_t least, int64_t most) {
    command.add_option(name, value, help).group(group).value_name("N").range(least, most);
  };
  add("--num-blocks,--num-gpu-blocks-override", options.num_blocks, "K/V blocks of the pool (default 4096)",
      1, INT32_MAX);
  add("--block-size", options.block_size, "Tokens of a K/V block (default 16)", 1, 65536);
  add("--max-num-seqs", options.max_num_seqs, "Sequences that run at once (default 64)", 1, 65536);
  add("--max-num-batched-tokens", options.max_num_batched_tokens, "Token budget of a step (default 2048)", 1,
      INT32_MAX);
  add("--max-model-len", options.max_model_len,
      "Most tokens of a sequence, prompt and answer together; longer ones are refused (default: what the "
      "pool holds)",
      1, INT32_MAX);
  add("--max-waiting", options.max_waiting, "Requests that may wait; more are refused (default: all may)", 0,
      INT32_MAX);
  add("--sliding-window", options.sliding_window,
      "Limit attention to the last N tokens, and free the blocks behind them (default 0: no window)", 0,
      INT32_MAX);
  command
      .add_flag("!--no-enable-prefix-caching,--enable-prefix-caching", options.enable_prefix_caching,
                "Share the K/V of equal prefixes between requests (on by default)")
      .group(group);
}

WorkloadOptions workload_options(const SimulateOptions& options) {
  WorkloadOptions workload = options.workload;
  if (options.demo) use_demo_workload(workload);
  return workload;
}

void refuse_idle_flags(const SimulateOptions& options, const Flags& command,
                       const WorkloadOptions& workload) {
  const uint32_t at_once = options.max_num_seqs.value_or(0);  // 0: the default, which is several
  refuse_idle_policies(command, options.policies,
                       {.prefix_caching = options.enable_prefix_caching,
                        .max_num_seqs = at_once,
                        .tenants = tenants_known(workload),
                        .priorities = priorities_known(workload),
                        .choices = workload.choices});
  if (options.policies.scheduling != control::SchedulingKind::kSrpt) {
    refuse_if_given(command, "--known-lengths",
                    "without --scheduling-policy srpt, the only policy that uses them");
  }
  refuse_idle_costs(command, options.policies.preemption != control::PreemptionKind::kRecompute, at_once);
  if (options.sliding_window > 0 && options.max_model_len.value_or(UINT32_MAX) <= options.sliding_window) {
    refuse_if_given(command, "--sliding-window", "unless it is less than --max-model-len");
  }
}

}  // namespace

void add_simulation_flags(const Flags& command, SimulateOptions& options) {
  command.add_flag("--demo", options.demo,
                   "A demonstration: a small pool, bursts, random arrivals and shared prefixes, step by "
                   "step; other flags change it");
  add_workload_options(command, options.workload);
  add_conversation_options(command, options.workload);
  add_service_options(command, options.workload);
  add_scheduler_options(command, options);
  add_policy_options(command, options.policies);
  add_cost_options(command, options.cost);
  command
      .add_option("--accept-us", options.accept_us,
                  "Receiving a request, one after the other, before it may be planned")
      .group(kSimGroup)
      .value_name("US")
      .show_default()
      .range(int64_t{0}, int64_t{1'000'000});
}

void settle_simulation(const SimulateOptions& options, const Flags& command, bool idle) {
  if (options.demo) {
    for (const char* flag : {"--trace", "--agents"}) {
      refuse_if_given(command, flag, "with --demo, which has a workload of its own");
    }
  }
  const WorkloadOptions workload = workload_options(options);
  check_workload_options(workload);
  if (idle) refuse_idle_flags(options, command, workload);
}

sim::SimulationConfig simulation_config(const SimulateOptions& options) {
  sim::SimulationConfig config;
  config.cost = options.cost.model();
  config.scheduler = scheduler_config(options, config.cost);
  config.depth = static_cast<uint32_t>(options.cost.steps_in_flight);
  config.jitter = options.cost.jitter;
  config.accept = static_cast<Nanos>(options.accept_us) * 1000;
  return config;
}

sim::Workload simulation_workload(const SimulateOptions& options) {
  const WorkloadOptions asked = workload_options(options);
  sim::Workload workload = make_workload(asked);
  if (workload.requests.empty()) throw Error("--requests: the workload has no requests");
  if (!asked.trace.empty()) check_policies(options.policies, workload);
  return workload;
}

}  // namespace quire::cli
