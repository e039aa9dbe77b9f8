#include "cli/workload_options.h"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

#include "base/error.h"
#include "cli/flags.h"
#include "cli/terminal.h"
#include "sim/generated_requests.h"
#include "sim/trace.h"
#include "startup/policy_options.h"

namespace quire::cli {
namespace {

constexpr const char* kWorkloadGroup =
    "Workload (LENGTH: N, uniform:LO:HI, lognormal:MEAN:SIGMA[:MAX], exponential:MEAN[:MAX], file:PATH)";

constexpr const char* kAgentsText =
    "a first prompt of 2000 shared tokens and some of its own, 5 to 25 turns, short answers, and results of "
    "tools that arrive after a while";

/// The options with what --agents sets.
WorkloadOptions with_presets(WorkloadOptions options) {
  if (!options.agents) return options;
  const auto set = [](auto& option, const auto& value) {
    if (!option) option = value;
  };
  set(options.turns, "uniform:5:25");
  set(options.shared_prefix, 2000);
  set(options.prompt, "lognormal:300:0.8:4000");
  set(options.turn_prompt, "lognormal:400:0.9:8000");
  set(options.output, "lognormal:60:0.6:500");
  set(options.think_ms, "lognormal:800:0.8:20000");
  return options;
}

uint32_t trace_speed(const WorkloadOptions& options) {
  const uint64_t speed = sim::parse_thousandths(options.trace_speed, "--trace-speed");
  if (speed == 0 || speed > UINT32_MAX) throw Error("--trace-speed: must be from 0.001 to 4000000");
  return static_cast<uint32_t>(speed);
}

/// A flag with a value, or nullopt; for those whose text is parsed later.
std::optional<sim::Lengths> lengths_of(const std::optional<std::string>& text, const char* flag) {
  if (!text) return std::nullopt;
  return sim::Lengths::parse(*text, flag);
}

sim::ArrivalConfig arrival_config(const WorkloadOptions& options) {
  sim::ArrivalConfig config;
  config.rate_thousandths = sim::parse_thousandths(options.rate.value_or("0"), "--rate");
  config.burst = options.burst.value_or(0);
  if (options.burst_every && config.burst == 0)
    throw Error("--burst-every: there are no bursts without --burst");
  config.burst_every = static_cast<Nanos>(
      sim::parse_thousandths(options.burst_every.value_or("1"), "--burst-every") * 1'000'000);
  const uint64_t burstiness = sim::parse_thousandths(options.burstiness.value_or("1"), "--burstiness");
  if (burstiness < 10 || burstiness > 1'000'000) throw Error("--burstiness: must be from 0.01 to 1000");
  config.burstiness_thousandths = static_cast<uint32_t>(burstiness);
  config.on_ms = lengths_of(options.on_ms, "--on-ms");
  config.off_ms = lengths_of(options.off_ms, "--off-ms");
  if (config.on_ms && !config.off_ms) throw Error("--on-ms: it is always on without --off-ms");
  if (config.off_ms && !config.on_ms) throw Error("--off-ms: it is always off without --on-ms");
  if (config.rate_thousandths > 0) return config;
  const char* without_rate = "the times of requests are not drawn without --rate";
  if (options.burstiness) throw Error(fmt::format("--burstiness: {}", without_rate));
  if (options.on_ms) throw Error(fmt::format("--on-ms: {}", without_rate));
  return config;
}

sim::TimesConfig times_config(const WorkloadOptions& options) {
  sim::TimesConfig config;
  static_cast<sim::ArrivalConfig&>(config) = arrival_config(options);
  config.users = options.users.value_or(0);
  config.think_ms = lengths_of(options.think_ms, "--think-time-ms");
  if (config.users > 0) {
    const char* why = "cannot be combined with --users, who send their requests when earlier ones have ended";
    if (options.rate) throw Error(fmt::format("--rate: {}", why));
    if (options.burst) throw Error(fmt::format("--burst: {}", why));
  }
  return config;
}

sim::ServiceConfig service_config(const WorkloadOptions& options) {
  return {.seed = options.seed,
          .num_tenants = options.tenants,
          .num_priorities = options.priorities,
          .ttft_deadline_ms = sim::Lengths::parse(options.ttft_deadline_ms, "--ttft-deadline-ms")};
}

/// What is to be drawn.
sim::WorkloadConfig drawn_config(const WorkloadOptions& options, uint32_t vocab_size) {
  sim::WorkloadConfig config;
  static_cast<sim::TimesConfig&>(config) = times_config(options);
  config.seed = options.seed;
  config.vocab_size = vocab_size;
  config.choices = options.choices;
  config.lengths_known = options.lengths_known;
  config.num_requests = options.requests.value_or(options.default_requests);
  config.prompt = sim::Lengths::parse(options.prompt.value_or(options.default_prompt), "--prompt-len");
  config.output = sim::Lengths::parse(options.output.value_or(options.default_output), "--output-len");
  config.prefix_length = options.shared_prefix.value_or(0);
  if (options.shared_prefixes && config.prefix_length == 0) {
    throw Error("--shared-prefixes: there are none without --shared-prefix-len");
  }
  config.num_prefixes = options.shared_prefixes.value_or(1);
  if (options.zipf && config.num_prefixes == 1) {
    throw Error("--zipf: there is nothing to choose without --shared-prefixes");
  }
  const uint64_t zipf = sim::parse_thousandths(options.zipf.value_or("1"), "--zipf");
  if (zipf > 100'000) throw Error("--zipf: must be from 0 to 100");
  config.zipf_thousandths = static_cast<uint32_t>(zipf);
  config.turns = sim::Lengths::parse(options.turns.value_or("1"), "--turns");
  config.turn_prompt = lengths_of(options.turn_prompt, "--turn-len");
  const bool has_turns = config.turns.kind != sim::Lengths::Kind::kFixed || config.turns.high > 1;
  if (config.turn_prompt && !has_turns) throw Error("--turn-len: there are no later turns without --turns");
  if (config.think_ms && !has_turns && config.users == 0) {
    throw Error("--think-time-ms: no request follows another without --users or --turns");
  }
  config.service = service_config(options);
  return config;
}

/// Refuses flags that the trace leaves without effect.
void check_trace_flags(const WorkloadOptions& options, const sim::Workload& workload) {
  const auto refuse = [&](bool given, const char* flag, const char* why) {
    if (given) throw Error(fmt::format("{}: changes nothing with this trace, {}", flag, why));
  };
  const char* timed = "which has arrival times (--trace-speed changes them)";
  refuse(workload.has_times && options.rate, "--rate", timed);
  refuse(workload.has_times && options.burst, "--burst", timed);
  const bool speed = options.trace_speed != WorkloadOptions().trace_speed;
  refuse(speed && !workload.has_times, "--trace-speed", "which has no arrival times");
  refuse(speed && options.users, "--trace-speed", "whose arrival times --users replaces");
  const bool follows = options.users || std::ranges::any_of(workload.requests, &sim::SimRequest::continues);
  refuse(options.think_ms && !follows, "--think-time-ms",
         "none of whose requests follows another; give --users N");
  refuse(workload.has_tenants && options.tenants > 1, "--tenants", "which names the tenants");
  refuse(workload.has_priorities && options.priorities > 1, "--priorities", "which has priorities");
  refuse(workload.has_deadlines && options.ttft_deadline_ms != WorkloadOptions().ttft_deadline_ms,
         "--ttft-deadline-ms", "which has deadlines");
}

sim::Workload read_workload(const WorkloadOptions& options, uint32_t vocab_size,
                            const std::function<uint64_t(std::string_view)>& count_tokens) {
  if (options.requests == 0) throw Error("--requests: the workload has no requests");
  sim::TraceOptions trace;
  trace.seed = options.seed;
  trace.vocab_size = vocab_size;
  trace.max_requests = options.requests.value_or(UINT32_MAX);
  trace.speed_thousandths = trace_speed(options);
  trace.count_tokens = count_tokens;
  sim::Workload workload = sim::read_trace(options.trace, trace);
  check_trace_flags(options, workload);
  if (options.first_turns_only && std::erase_if(workload.requests, &sim::SimRequest::continues) > 0) {
    workload.notes.push_back(
        fmt::format("{}: only the first turn of each conversation is sent", options.trace));
  }
  if (!workload.has_times || options.users) sim::give_times(workload, times_config(options));
  sim::assign_service(workload, service_config(options));
  workload.lengths_known = options.lengths_known;
  workload.choices = options.choices;
  return workload;
}

}  // namespace

void add_workload_options(const Flags& command, WorkloadOptions& options) {
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return command.add_option(name, value, help).group(kWorkloadGroup).value_name(type);
  };
  const Flag trace = add(
      "--trace", options.trace,
      "Requests from a trace, recognized by content: Azure's or BurstGPT's (CSV), Mooncake's (JSON lines), "
      "ShareGPT's conversations (JSON, without arrival times), or a decision log of quire",
      "FILE");
  const auto drawn = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return add(name, value, help, type).excludes(trace);
  };
  add("--trace-speed", options.trace_speed, "The trace's requests arrive X times as fast", "X")
      .show_default()
      .needs(trace);
  add("--requests,--num-prompts", options.requests,
      fmt::format("Number of requests; with a trace, its first N (default {}, or all)",
                  options.default_requests),
      "N");
  add("--rate,--request-rate", options.rate,
      "Requests, or beginnings of conversations, per second, at random times; 0 without bursts: all at once "
      "(default 0)",
      "R");
  add("--burstiness", options.burstiness,
      "Shape of the gamma distribution of the times between them: 1 is Poisson, less is burstier, more is "
      "more regular (default 1)",
      "B");
  add("--on-ms", options.on_ms,
      "They arrive only in phases of this length in milliseconds, at that rate, with pauses between them",
      "LENGTH");
  add("--off-ms", options.off_ms, "The length of these pauses in milliseconds", "LENGTH");
  add("--burst", options.burst, "Further requests that arrive at once, in bursts (default 0)", "N");
  add("--burst-every", options.burst_every, "Seconds from burst to burst (default 1)", "S");
  drawn("--prompt-len,--input-len", options.prompt,
        fmt::format("Tokens of a prompt, besides the shared prefix. file:PATH: drawn from its lines "
                    "LENGTH,COUNT (default {})",
                    options.default_prompt),
        "LENGTH");
  drawn("--output-len", options.output,
        fmt::format("Tokens of an answer (default {})", options.default_output), "LENGTH");
  drawn("--shared-prefix-len,--prefix-length", options.shared_prefix,
        "Tokens of a prefix that prompts share (default 0)", "N");
  drawn("--shared-prefixes,--num-prefixes", options.shared_prefixes, "Number of such prefixes (default 1)",
        "N")
      .range(1, 10'000'000);
  drawn("--zipf", options.zipf,
        "How unevenly the prefixes are used: the k-th in proportion to k^-ALPHA (default 1)", "ALPHA");
  add("--seed", options.seed, "Random seed of arrivals, lengths and tokens", "N")
      .show_default()
      .whole_number();
}

void add_user_options(const Flags& command, WorkloadOptions& options) {
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return command.add_option(name, value, help).group(kWorkloadGroup).value_name(type);
  };
  add("--users", options.users,
      "A closed loop: N users, each of whom sends the next request, or begins the next conversation, when "
      "the "
      "last has ended; the times of a trace do not count then",
      "N")
      .range(1, 1'000'000);
  add("--think-time-ms", options.think_ms,
      "Milliseconds before each request of a user, and before a later turn of a conversation (default none)",
      "LENGTH");
}

void add_conversation_options(const Flags& command, WorkloadOptions& options) {
  add_user_options(command, options);
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return command.add_option(name, value, help).group(kWorkloadGroup).value_name(type);
  };
  const Flag trace = command.find("--trace");
  add("--turns", options.turns,
      "Requests of a conversation: each begins with the prompt and the answer of the last (default 1)",
      "LENGTH")
      .excludes(trace);
  add("--turn-len", options.turn_prompt, "Tokens that a later turn adds to them (default: as --prompt-len)",
      "LENGTH")
      .excludes(trace);
  command
      .add_flag(
          "--agents", options.agents,
          fmt::format("Loops of agents, which call tools and read what they say: {}; other flags change it",
                      kAgentsText))
      .group(kWorkloadGroup)
      .excludes(trace);
}

void add_service_options(const Flags& command, WorkloadOptions& options) {
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return command.add_option(name, value, help).group(kWorkloadGroup).value_name(type);
  };
  add("-n,--n,--best-of", options.choices, "Answers to each prompt, which share its blocks", "N")
      .show_default()
      .range(1, 1024);
  add("--tenants", options.tenants, "Number of tenants; the k-th sends requests in proportion to 1/k", "N")
      .show_default()
      .range(1, 1'000'000);
  add("--priorities", options.priorities, "Number of priorities, 0 to N-1, equally frequent", "N")
      .show_default()
      .range(1, 1'000'000);
  add("--ttft-deadline-ms", options.ttft_deadline_ms, "Deadline of the first token, in milliseconds",
      "LENGTH")
      .show_default();
  command
      .add_flag("--known-lengths", options.lengths_known,
                "Tell the scheduler how long each answer will be; otherwise it estimates from recent answers")
      .group(kWorkloadGroup);
}

std::optional<uint32_t> tenants_known(const WorkloadOptions& options) {
  return options.trace.empty() ? std::optional(options.tenants) : std::nullopt;
}

std::optional<uint32_t> priorities_known(const WorkloadOptions& options) {
  return options.trace.empty() ? std::optional(options.priorities) : std::nullopt;
}

void use_demo_workload(WorkloadOptions& options) {
  const auto set = [](auto& option, const auto& value) {
    if (!option) option = value;
  };
  set(options.requests, 96);
  if (!options.users) {
    set(options.rate, "10");
    set(options.burst, 12);
    set(options.burst_every, "2");
  }
  set(options.prompt, "lognormal:60:0.6:300");
  set(options.output, "lognormal:60:0.7:300");
  set(options.shared_prefix, 64);
  set(options.shared_prefixes, 2);
}

void check_workload_options(const WorkloadOptions& options) {
  constexpr uint32_t kAnyVocabulary = 2;
  if (options.trace.empty()) {
    drawn_config(with_presets(options), kAnyVocabulary);
  } else {
    times_config(options);
  }
  trace_speed(options);
  sim::Lengths::parse(options.ttft_deadline_ms, "--ttft-deadline-ms");
}

sim::Workload make_workload(const WorkloadOptions& options, uint32_t vocab_size,
                            const std::function<uint64_t(std::string_view)>& count_tokens) {
  const WorkloadOptions all = with_presets(options);
  if (all.trace.empty()) return sim::make_workload(drawn_config(all, vocab_size));
  return read_workload(all, vocab_size, count_tokens);
}

std::unique_ptr<sim::RequestStream> make_requests(const WorkloadOptions& options,
                                                  const std::function<void(const sim::Workload&)>& check) {
  const uint32_t vocab_size = sim::WorkloadSettings().vocab_size;
  const WorkloadOptions all = with_presets(options);
  if (all.trace.empty()) return std::make_unique<sim::GeneratedRequests>(drawn_config(all, vocab_size));
  auto workload = std::make_shared<sim::Workload>(read_workload(all, vocab_size, {}));
  check(*workload);
  return std::make_unique<sim::ListedRequests>(std::move(workload));
}

void print_notes(const sim::WorkloadSettings& settings) {
  for (const std::string& note : settings.notes) fmt::print(stderr, "quire: {}\n", terminal_text(note));
}

void check_policies(const startup::PolicyOptions& policies, const sim::Workload& workload) {
  if (workload.requests.empty()) return;
  const sim::SimRequest& first = workload.requests.front();
  const bool one_tenant = std::ranges::all_of(
      workload.requests, [&](const sim::SimRequest& request) { return request.tenant == first.tenant; });
  const bool one_priority = std::ranges::all_of(
      workload.requests, [&](const sim::SimRequest& request) { return request.priority == first.priority; });
  if (policies.scheduling == control::SchedulingKind::kFair && one_tenant) {
    throw Error("--scheduling-policy: changes nothing with fair and a trace of one tenant; give --tenants N");
  }
  if (policies.scheduling == control::SchedulingKind::kPriority && one_priority) {
    throw Error("--scheduling-policy: changes nothing with a trace of one priority; give --priorities N");
  }
  if (policies.victim == control::VictimKind::kLowestPriority && one_priority) {
    throw Error("--victim-policy: changes nothing with a trace of one priority; give --priorities N");
  }
}

}  // namespace quire::cli
