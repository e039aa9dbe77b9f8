#include "cli/workload_options.h"

#include <fmt/format.h>

#include "base/error.h"
#include "cli/flags.h"
#include "sim/trace.h"

namespace quire::cli {
namespace {

constexpr const char* kWorkloadGroup =
    "Workload (a length is N, uniform:LOW:HIGH or lognormal:MEAN:SIGMA[:MOST])";

uint32_t trace_speed(const WorkloadOptions& options) {
  const uint64_t speed = sim::parse_thousandths(options.trace_speed, "--trace-speed");
  if (speed == 0 || speed > UINT32_MAX) throw Error("--trace-speed: must be from 0.001 to 4000000");
  return static_cast<uint32_t>(speed);
}

/// What is to be drawn.
sim::WorkloadConfig drawn_config(const WorkloadOptions& options, uint32_t vocab_size) {
  sim::WorkloadConfig config;
  config.seed = options.seed;
  config.vocab_size = vocab_size;
  config.num_requests = options.requests.value_or(options.default_requests);
  config.rate_thousandths = sim::parse_thousandths(options.rate.value_or("0"), "--rate");
  config.burst = options.burst.value_or(0);
  if (options.burst_every && config.burst == 0)
    throw Error("--burst-every: there are no bursts without --burst");
  config.burst_every = static_cast<Nanos>(
      sim::parse_thousandths(options.burst_every.value_or("1"), "--burst-every") * 1'000'000);
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
  return config;
}

sim::Workload requests_of(const WorkloadOptions& options, uint32_t vocab_size) {
  if (options.trace.empty()) return quire::sim::make_workload(drawn_config(options, vocab_size));
  sim::TraceOptions trace;
  trace.seed = options.seed;
  trace.vocab_size = vocab_size;
  trace.max_requests = options.requests.value_or(UINT32_MAX);
  trace.speed_thousandths = trace_speed(options);
  return sim::read_trace(options.trace, trace);
}

}  // namespace

void add_workload_options(const Flags& command, WorkloadOptions& options) {
  const auto add = [&](const char* name, auto& value, const std::string& help, const char* type) {
    return command.add_option(name, value, help).group(kWorkloadGroup).value_name(type);
  };
  const Flag trace =
      add("--trace", options.trace,
          "Requests from a trace: Azure's (CSV) or Mooncake's (JSON lines), recognized by content", "FILE");
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
  drawn("--rate,--request-rate", options.rate,
        "Requests per second, at random times (Poisson); 0 without bursts: all at once (default 0)", "R");
  drawn("--burst", options.burst, "Further requests that arrive at once, in bursts (default 0)", "N");
  drawn("--burst-every", options.burst_every, "Seconds from burst to burst (default 1)", "S");
  drawn("--prompt-len,--input-len", options.prompt,
        fmt::format("Tokens of a prompt, besides the shared prefix (default {})", options.default_prompt),
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

void use_demo_workload(WorkloadOptions& options) {
  const auto set = [](auto& option, const auto& value) {
    if (!option) option = value;
  };
  set(options.requests, 96);
  set(options.rate, "10");
  set(options.burst, 12);
  set(options.burst_every, "2");
  set(options.prompt, "lognormal:60:0.6:300");
  set(options.output, "lognormal:60:0.7:300");
  set(options.shared_prefix, 64);
  set(options.shared_prefixes, 2);
}

void check_workload_options(const WorkloadOptions& options) {
  constexpr uint32_t kAnyVocabulary = 2;
  if (options.trace.empty()) drawn_config(options, kAnyVocabulary);
  trace_speed(options);
  sim::Lengths::parse(options.ttft_deadline_ms, "--ttft-deadline-ms");
}

sim::Workload make_workload(const WorkloadOptions& options, uint32_t vocab_size) {
  sim::Workload workload = requests_of(options, vocab_size);
  sim::ServiceConfig service;
  service.seed = options.seed;
  service.num_tenants = options.tenants;
  service.num_priorities = options.priorities;
  service.ttft_deadline_ms = sim::Lengths::parse(options.ttft_deadline_ms, "--ttft-deadline-ms");
  sim::assign_service(workload, service);
  workload.lengths_known = options.lengths_known;
  workload.choices = options.choices;
  return workload;
}

}  // namespace quire::cli
