#include "cli/idle_flags.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/generate.h"
#include "cli/workload_options.h"
#include "startup/engine_options.h"

namespace quire::cli {
namespace {

bool swaps(const startup::PolicyOptions& options) {
  return options.preemption != control::PreemptionKind::kRecompute;
}

/// With one sequence at a time, no sequence is preempted or waits for another.
void refuse_idle_in_turn(const Flags& command, const startup::PolicyOptions& options, std::string_view why) {
  const startup::PolicyOptions usual;
  const auto refuse = [&](const char* flag, bool differs) {
    if (differs) refuse_if_given(command, flag, why);
  };
  refuse("--batching", options.batching != usual.batching);
  refuse("--victim-policy", options.victim != usual.victim);
  refuse("--preemption-mode", options.preemption != usual.preemption);
  refuse("--watermark", options.watermark != usual.watermark);
  refuse("--admit-eagerly", options.admit_eagerly);
  refuse("--admit-while-preempting", options.admit_while_preempting);
}

/// Whether a preempted sequence may be behind a waiting one, or need less than it released. Otherwise it is
/// the next to be admitted and finds no room, and no sequence is admitted before it.
bool may_admit_while_preempting(const startup::PolicyOptions& options, const PolicyField& field) {
  return options.victim != control::VictimKind::kLastAdmitted ||
         options.scheduling == control::SchedulingKind::kSrpt ||
         options.scheduling == control::SchedulingKind::kSlo ||
         options.scheduling == control::SchedulingKind::kPriority ||
         options.scheduling == control::SchedulingKind::kFair || field.choices.value_or(1) > 1;
}

/// Refuses flags that have no effect for a command with a single request.
void refuse_idle_for_one_request(const Flags& command, const startup::EngineOptions& options,
                                 uint32_t choices) {
  const char* one = "for one answer; -n asks for several";
  if (choices <= options.max_num_seqs) {
    refuse_if_given(command, "--max-waiting",
                    choices == 1 ? one : "where all answers run at once; --max-num-seqs lets some wait");
  }
  // A larger pool keeps more for the next run, if anything is kept.
  if (choices > 1 || !options.prefix_cache_file.empty()) return;
  if (options.max_num_seqs > 1) refuse_if_given(command, "--max-num-seqs", one);
  // No later request could hit the cached blocks; but these files report them.
  if (!options.step_trace.empty() || !options.decision_log.empty()) return;
  if (options.policies.eviction != startup::PolicyOptions().eviction) {
    refuse_if_given(command, "--eviction-policy", one);
  }
  if (!options.enable_prefix_caching) refuse_if_given(command, "--no-enable-prefix-caching", one);
}

}  // namespace

void refuse_if_given(const Flags& command, std::string_view flag, std::string_view why) {
  if (command.is_given(flag)) throw Error(fmt::format("{}: changes nothing {}", flag, why));
}

void refuse_idle_policies(const Flags& command, const startup::PolicyOptions& options,
                          const PolicyField& field) {
  startup::check_policy_options(options, field.prefix_caching);
  if (field.one_request && field.choices.value_or(1) == 1) {
    const char* why = "for one answer; -n asks for several";
    if (options.scheduling != startup::PolicyOptions().scheduling)
      refuse_if_given(command, "--scheduling-policy", why);
    refuse_idle_in_turn(command, options, why);
  } else if (field.max_num_seqs == 1) {
    refuse_idle_in_turn(command, options, "with --max-num-seqs 1: sequences run one after the other");
  }
  const auto refuse = [&](bool is_idle, const char* flag, const char* why) {
    if (is_idle) refuse_if_given(command, flag, why);
  };
  const bool by_priority = options.scheduling == control::SchedulingKind::kPriority;
  const bool is_fair = options.scheduling == control::SchedulingKind::kFair;
  if (field.one_request) {
    const bool alike = by_priority || is_fair || options.scheduling == control::SchedulingKind::kSlo;
    refuse(alike, "--scheduling-policy",
           "here: answers to one prompt have one tenant, priority and deadline");
    refuse(options.victim == control::VictimKind::kLowestPriority, "--victim-policy",
           "here: answers to one prompt have one priority");
  }
  refuse(is_fair && field.tenants == 1U, "--scheduling-policy", "with fair and one tenant; give --tenants N");
  refuse(by_priority && field.priorities == 1U, "--scheduling-policy",
         "with one priority; give --priorities N");
  refuse(options.victim == control::VictimKind::kLowestPriority && field.priorities == 1U, "--victim-policy",
         "with one priority; give --priorities N");
  refuse(!may_admit_while_preempting(options, field), "--admit-while-preempting",
         "where the preempted sequence is the next to be admitted; combine it with --victim-policy "
         "least-progress or "
         "priority, or --scheduling-policy srpt, slo, priority or fair");
}

void refuse_idle_workload_flags(const Flags& command, const WorkloadOptions& options,
                                const startup::PolicyOptions& policies) {
  const bool fair = policies.scheduling == control::SchedulingKind::kFair;
  const bool by_priority = policies.scheduling == control::SchedulingKind::kPriority ||
                           policies.victim == control::VictimKind::kLowestPriority;
  if (!fair && options.tenants > 1) {
    refuse_if_given(command, "--tenants",
                    "without --scheduling-policy fair, the only policy that uses tenants");
  }
  if (!by_priority && options.priorities > 1) {
    refuse_if_given(command, "--priorities",
                    "without --scheduling-policy priority or --victim-policy priority");
  }
  if (policies.scheduling != control::SchedulingKind::kSrpt) {
    refuse_if_given(command, "--known-lengths",
                    "without --scheduling-policy srpt, the only policy that uses them");
  }
}

void refuse_idle_costs(const Flags& command, bool swaps, uint32_t max_num_seqs) {
  for (const char* whole : {"--cost", "--machine"}) {
    if (!command.is_given(whole)) continue;
    for (const char* flag : {"--cost-step-us", "--cost-prefill-tokens-per-ms", "--cost-decode-us",
                             "--cost-decode-more-us", "--cost-swap-block-us"}) {
      refuse_if_given(command, flag, fmt::format("with {}, whose model has all costs", whole));
    }
  }
  if (!command.is_given("--machine")) {
    refuse_if_given(command, "--efficiency", "without --machine, whose rates it is of");
  }
  if (!swaps) refuse_if_given(command, "--cost-swap-block-us", "without --preemption-mode swap or auto");
  if (max_num_seqs == 1) {
    refuse_if_given(command, "--cost-decode-more-us", "with one sequence at a time (--max-num-seqs 1)");
  }
}

void refuse_idle_sampling(const Flags& command, const SamplingOptions& options, bool beam_search) {
  if (beam_search) {
    for (const char* flag :
         {"--temperature", "--top-k", "--top-p", "--min-p", "--repetition-penalty", "--seed"}) {
      refuse_if_given(command, flag, "with --beam-search, which does not sample");
    }
  }
  if (options.temperature == 0.0F) {
    for (const char* flag : {"--top-k", "--top-p", "--min-p", "--seed"}) {
      refuse_if_given(command, flag, "with --temperature 0, which always takes the most likely token");
    }
  }
}

void refuse_idle_engine_flags(const Flags& command, const startup::EngineOptions& options,
                              PolicyField field) {
  const bool may_swap = swaps(options.policies);
  field.prefix_caching = options.enable_prefix_caching;
  field.max_num_seqs = options.max_num_seqs;
  refuse_idle_policies(command, options.policies, field);
  if (field.one_request) refuse_idle_for_one_request(command, options, field.choices.value_or(1));
  if (options.cost.cost_file.empty() && options.shadow.cost_file.empty()) {
    refuse_if_given(command, "--force", "without a cost model, as --cost gives one");
  }
  if (options.device->is_simulated) {
    for (const char* flag : {"--threads", "--isa", "--pack-cache", "--no-mmap"}) {
      refuse_if_given(command, flag, "with --device sim, which computes nothing");
    }
    const bool is_fitted = !options.cost.cost_file.empty();  // to formats that must be those of the flags
    if (!options.cost.machine && !is_fitted) {
      refuse_if_given(command, "--quantization", "with --device sim, which computes nothing");
    }
    if (!options.cost.machine && !is_fitted && options.kv_cache_memory.empty() && !may_swap) {
      const char* why =
          "with --device sim: K/V takes no memory there, unless --kv-cache-memory or --swap-space bounds it";
      for (const char* flag : {"--dtype", "--kv-cache-dtype"}) refuse_if_given(command, flag, why);
    }
    refuse_idle_costs(command, may_swap, options.max_num_seqs);
    return;
  }
  for (const char* flag :
       {"--sim-speed", "--machine", "--efficiency", "--cost", "--cost-jitter", "--jitter-seed",
        "--cost-step-us", "--cost-prefill-tokens-per-ms", "--cost-decode-us", "--cost-decode-more-us",
        "--cost-swap-block-us", "--check-kv"}) {
    refuse_if_given(command, flag, "without --device sim");
  }
  if (!options.device->may_be_gpu) {
    refuse_if_given(command, "--steps-in-flight",
                    "without --device cuda or --device sim: a CPU computes one step at a time");
  }
}

}  // namespace quire::cli
