// bench throughput: the engine under load in real time, with the same workloads as simulate.
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/log.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/sim_options.h"
#include "cli/terminal.h"
#include "cli/workload_options.h"
#include "sim/report.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

struct Options {
  startup::EngineOptions engine{.default_max_waiting =
                                    UINT32_MAX};  // the workload determines the number of requests
  WorkloadOptions workload{.default_requests = 64, .default_prompt = "128", .default_output = "64"};
  bool as_json = false;
};

/// The results of the requests, filled by the engine thread.
struct Outcome {
  std::mutex mutex;
  std::condition_variable ended;
  size_t open = 0;
  uint64_t prompt_tokens = 0;  // of finished requests; so are the others
  uint64_t output_tokens = 0;
  uint64_t failed = 0;
  uint64_t in_time = 0;
  std::string first_error;
  std::vector<Nanos> ttft;
  std::vector<Nanos> tpot;
  std::vector<Nanos> e2e;
};

/// Follows one request, as its sink.
struct Follower {
  std::shared_ptr<Outcome> outcome;
  const Clock* clock;
  Nanos arrival;
  Nanos deadline;
  uint32_t choices;
  Nanos first = -1;

  void operator()(const engine::RequestOutput& output) {
    const Nanos now = clock->now();
    if (first < 0 && output.completion_tokens > 0) first = now;
    if (!output.done) return;
    const std::lock_guard lock(outcome->mutex);
    --outcome->open;
    outcome->ended.notify_one();
    if (output.error || first < 0) {
      ++outcome->failed;
      if (outcome->first_error.empty()) {
        outcome->first_error = output.error ? output.error->message : "an answer without tokens";
      }
      return;
    }
    outcome->prompt_tokens += output.prompt_tokens;
    outcome->output_tokens += output.completion_tokens;
    outcome->in_time += first - arrival <= deadline ? 1 : 0;
    outcome->ttft.push_back(first - arrival);
    outcome->e2e.push_back(now - arrival);
    const uint32_t each = output.completion_tokens / choices;
    if (each > 1) outcome->tpot.push_back((now - first) / (each - 1));
  }
};

engine::GenerationRequest request_of(const sim::Workload& workload, size_t index) {
  const sim::SimRequest& from = workload.requests[index];
  engine::GenerationRequest request;
  request.prompt = workload.prompt(index);
  request.n = workload.choices;
  request.max_tokens = from.output_length;
  request.ignore_eos = true;
  request.sampling.seed = index;
  request.priority = from.priority;
  request.ttft_deadline = from.ttft_deadline;
  request.tenant = from.tenant;
  if (workload.lengths_known) request.expected_tokens = from.output_length;
  return request;
}

void print(const Outcome& outcome, const engine::EngineStats& stats, double elapsed, bool as_json) {
  const uint64_t finished = outcome.ttft.size();
  const double output_rate = static_cast<double>(outcome.output_tokens) / elapsed;
  const double request_rate = static_cast<double>(finished) / elapsed;
  const std::pair<const char*, sim::Percentiles> times[] = {
      {"to the first token", sim::percentiles(outcome.ttft)},
      {"per further token", sim::percentiles(outcome.tpot)},
      {"to the last token", sim::percentiles(outcome.e2e)}};
  if (as_json) {
    json::object root{{"finished", finished},
                      {"failed", outcome.failed},
                      {"seconds", elapsed},
                      {"prompt_tokens", outcome.prompt_tokens},
                      {"output_tokens", outcome.output_tokens},
                      {"output_tokens_per_second", output_rate},
                      {"prefix_hit_tokens", stats.step.total_prefix_hit_tokens},
                      {"preemptions", stats.step.total_preemptions},
                      {"evictions", stats.step.total_evictions},
                      {"in_time", outcome.in_time}};
    const char* const names[] = {"ttft_ns", "tpot_ns", "e2e_ns"};
    for (size_t i = 0; i < std::size(names); ++i) {
      const sim::Percentiles& of = times[i].second;
      root[names[i]] = {
          {"mean", of.mean}, {"p50", of.p50}, {"p90", of.p90}, {"p99", of.p99}, {"max", of.max}};
    }
    fmt::print("{}\n", json::serialize(root));
    return;
  }
  fmt::print("{} requests in {:.2f} s ({} failed): {:.1f} output tokens/s, {:.2f} requests/s\n", finished,
             elapsed, outcome.failed, output_rate, request_rate);
  fmt::print("{} tokens in, {} out; {} found in the prefix cache, {} preemptions, {} evictions\n",
             with_commas(outcome.prompt_tokens), with_commas(outcome.output_tokens),
             with_commas(stats.step.total_prefix_hit_tokens), stats.step.total_preemptions,
             stats.step.total_evictions);
  fmt::print("{} of {} first tokens in time\n", outcome.in_time, finished);
  print_times(times);
}

int throughput(Options& options) {
  set_log_level(options.as_json ? LogLevel::kWarning : LogLevel::kInfo);
  startup::LocalEngine local(options.engine, startup::model_name(options.engine.model.model));
  const sim::Workload workload = make_workload(options.workload, local.facts.vocab_size);
  const auto outcome = std::make_shared<Outcome>();
  Progress progress("bench", workload.requests.size());
  auto take = [&, shown = size_t{0}](size_t submitted) mutable {
    const size_t ended = submitted - outcome->open;
    progress.advance(ended - std::exchange(shown, ended));
  };
  const Nanos start = local.clock.now();
  for (size_t i = 0; i < workload.requests.size(); ++i) {
    const Nanos arrival = start + workload.requests[i].arrival;
    {
      std::unique_lock lock(outcome->mutex);
      while (local.clock.now() < arrival) {
        outcome->ended.wait_for(lock, std::chrono::nanoseconds(arrival - local.clock.now()));
        take(i);
      }
      ++outcome->open;
    }
    const Follower follower{outcome, &local.clock, arrival, workload.requests[i].ttft_deadline,
                            workload.choices};
    if (const auto taken = local.engine->submit(request_of(workload, i), follower); !taken) {
      if (i == 0) throw Error(taken.error().message);
      const std::lock_guard lock(outcome->mutex);
      if (outcome->first_error.empty()) outcome->first_error = taken.error().message;
      --outcome->open;
      ++outcome->failed;
    }
  }
  std::unique_lock lock(outcome->mutex);
  while (outcome->open > 0) {
    outcome->ended.wait(lock);
    take(workload.requests.size());
  }
  const double elapsed = static_cast<double>(std::max<Nanos>(1, local.clock.now() - start)) / 1e9;
  print(*outcome, local.engine->stats(), elapsed, options.as_json);
  if (outcome->failed == 0) return 0;
  fmt::print(stderr, "quire: {} requests failed; the first: {}\n", outcome->failed, outcome->first_error);
  return 1;
}

}  // namespace

void add_throughput(const Flags& bench, Command& run) {
  auto options = std::make_shared<Options>();
  const Flags command = bench.add_command(
      "throughput", "Load the engine in real time, with a workload as simulate draws it or from a trace");
  command.footer(
      "\nPrompts are arbitrary tokens. quire simulate runs the same workload in virtual time. Try\n"
      "  quire bench throughput MODEL --requests 64 --prompt-len uniform:16:128 --output-len 64\n"
      "  quire bench throughput MODEL --rate 2 --shared-prefix-len 128 --scheduling-policy lpm");
  command.add_flag("--json", options->as_json, "One JSON object");
  add_workload_options(command, options->workload);
  add_service_options(command, options->workload);
  add_engine_options(command, options->engine);
  add_device_options(command, options->engine);
  command.callback([options, command, &run] {
    const WorkloadOptions& workload = options->workload;
    refuse_idle_engine_flags(
        command, options->engine,
        {.tenants = workload.tenants, .priorities = workload.priorities, .choices = workload.choices});
    check_workload_options(workload);
    refuse_idle_workload_flags(command, workload, options->engine.policies);
    run = [options] { return throughput(*options); };
  });
}

}  // namespace quire::cli
