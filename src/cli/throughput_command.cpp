// bench throughput: the engine under load in real time, with the same workloads as simulate.
#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
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
#include "cli/message_reader.h"
#include "cli/sim_options.h"
#include "cli/terminal.h"
#include "cli/workload_options.h"
#include "sim/report.h"
#include "sim/report_json.h"
#include "sim/workload_source.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

struct ThroughputOptions {
  startup::EngineOptions engine{.default_max_waiting =
                                    UINT32_MAX};  // the workload determines the number of requests
  WorkloadOptions workload{.default_requests = 64, .default_prompt = "128", .default_output = "64"};
  bool as_json = false;
};

/// A request that has ended, as the engine thread says.
struct Ending {
  size_t index = 0;
  Nanos at = 0;
  bool failed = false;
  std::vector<TokenId> answer;
};

/// The results of the requests, filled by the engine thread.
struct Outcome {
  std::mutex mutex;
  std::condition_variable ended;
  std::vector<Ending> endings;  // that were not taken yet
  uint64_t prompt_tokens = 0;   // of finished requests; so are the others
  uint64_t output_tokens = 0;
  uint64_t failed = 0;
  uint64_t skipped = 0;       // requests of a trace that are too long, which were not sent
  std::string first_skipped;  // the first of them, and why
  uint64_t in_time = 0;
  std::string first_error;
  std::vector<Nanos> ttft;
  std::vector<Nanos> tpot;
  std::vector<Nanos> e2e;

  void fail(const std::string& why) {
    ++failed;
    if (first_error.empty()) first_error = why;
  }
};

/// Follows one request, as its sink.
struct Follower {
  std::shared_ptr<Outcome> outcome;
  const Clock* clock;
  size_t index;
  Nanos arrival;
  Nanos deadline;
  uint32_t choices;
  bool keeps_answer;
  Nanos first = -1;
  std::vector<TokenId> answer;

  void operator()(const engine::RequestOutput& output) {
    const Nanos now = clock->now();
    if (first < 0 && output.completion_tokens > 0) first = now;
    if (keeps_answer) keep(output);
    if (!output.done) return;
    const std::lock_guard lock(outcome->mutex);
    const bool failed = output.error || first < 0;
    outcome->endings.push_back({index, now, failed, std::move(answer)});
    outcome->ended.notify_one();
    if (failed) return outcome->fail(output.error ? output.error->message : "an answer without tokens");
    outcome->prompt_tokens += output.prompt_tokens;
    outcome->output_tokens += output.completion_tokens;
    outcome->in_time += first - arrival <= deadline ? 1 : 0;
    outcome->ttft.push_back(first - arrival);
    outcome->e2e.push_back(now - arrival);
    const uint32_t each = output.completion_tokens / choices;
    if (each > 1) outcome->tpot.push_back((now - first) / (each - 1));
  }

 private:
  void keep(const engine::RequestOutput& output) {
    for (const engine::ChoiceOutput& choice : output.choices) {
      if (choice.index != 0) continue;
      for (const SampledToken& token : choice.tokens) answer.push_back(token.token);
    }
  }
};

engine::GenerationRequest request_of(const sim::Workload& workload, size_t index,
                                     std::vector<TokenId> prompt) {
  const sim::SimRequest& from = workload.requests[index];
  engine::GenerationRequest request;
  request.prompt = std::move(prompt);
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

void print(const Outcome& outcome, const engine::EngineStats& stats, double elapsed,
           const std::string& warning, bool as_json) {
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
                      {"skipped_too_long", outcome.skipped},
                      {"seconds", elapsed},
                      {"prompt_tokens", outcome.prompt_tokens},
                      {"output_tokens", outcome.output_tokens},
                      {"output_tokens_per_second", output_rate},
                      {"prefix_hit_tokens", stats.step.total_prefix_hit_tokens},
                      {"preemptions", stats.step.total_preemptions},
                      {"evictions", stats.step.total_evictions},
                      {"in_time", outcome.in_time},
                      {"warning", warning.empty() ? json::value() : json::value(warning)}};
    const char* const names[] = {"ttft_ns", "tpot_ns", "e2e_ns"};
    for (size_t i = 0; i < std::size(names); ++i) {
      root[names[i]] = sim::times_json(times[i].second);
    }
    fmt::print("{}\n", json::serialize(root));
    return;
  }
  if (!warning.empty()) fmt::print("warning: {}\n", warning);
  fmt::print("{} requests in {:.2f} s ({} failed): {:.1f} output tokens/s, {:.2f} requests/s\n", finished,
             elapsed, outcome.failed, output_rate, request_rate);
  fmt::print("{} tokens in, {} out; {} found in the prefix cache, {} preemptions, {} evictions\n",
             with_commas(outcome.prompt_tokens), with_commas(outcome.output_tokens),
             with_commas(stats.step.total_prefix_hit_tokens), stats.step.total_preemptions,
             stats.step.total_evictions);
  fmt::print("{} of {} first tokens in time\n", outcome.in_time, finished);
  if (finished > 0) print_times(times);
}

/// Sends the requests of a workload when they are due, and tells its source what has ended.
class Load {
 public:
  Load(startup::LocalEngine& local, const sim::Workload& workload, bool skips_too_long)
      : local_(local),
        workload_(workload),
        source_(workload),
        skips_too_long_(skips_too_long),
        progress_("bench", workload.requests.size()) {}

  /// Returns the seconds that it took.
  double run() {
    const InterruptNote note;
    start_ = local_.clock.now();
    while (!InterruptNote::interrupted()) {
      take_endings();
      const auto next = source_.next();
      if (next && local_.clock.now() >= start_ + *next) {
        send(source_.take(), *next);
      } else if (next || open_ > 0) {
        wait(next);
      } else {
        break;
      }
    }
    return static_cast<double>(std::max<Nanos>(1, local_.clock.now() - start_)) / 1e9;
  }

  Outcome& outcome() { return *outcome_; }
  /// Requests that have not ended.
  size_t left() const { return open_ + source_.left(); }

 private:
  void wait(std::optional<Nanos> next) {
    constexpr Nanos kLookUp = 200'000'000;  // for an interrupt
    const Nanos due = next ? start_ + *next - local_.clock.now() : kLookUp;
    std::unique_lock lock(outcome_->mutex);
    outcome_->ended.wait_for(lock, std::chrono::nanoseconds(std::clamp<Nanos>(due, 0, kLookUp)),
                             [&] { return !outcome_->endings.empty(); });
  }

  void take_endings() {
    std::vector<Ending> endings;
    {
      const std::lock_guard lock(outcome_->mutex);
      endings.swap(outcome_->endings);
    }
    for (const Ending& ending : endings) {
      --open_;
      progress_.advance();
      for (const TokenId token : ending.answer) source_.sampled(ending.index, token);
      if (ending.failed) {
        give_up(ending.index, ending.at - start_);
      } else {
        source_.ended(ending.index, ending.at - start_);
      }
    }
  }

  void send(size_t index, Nanos due) {
    const sim::SimRequest& request = workload_.requests[index];
    const Follower follower{.outcome = outcome_,
                            .clock = &local_.clock,
                            .index = index,
                            .arrival = start_ + due,
                            .deadline = request.ttft_deadline,
                            .choices = workload_.choices,
                            .keeps_answer = source_.keeps_answer(index)};
    ++open_;
    const auto taken = local_.engine->submit(request_of(workload_, index, source_.prompt(index)), follower);
    if (taken) return;
    --open_;
    progress_.advance();
    refuse(index, taken.error());
    give_up(index, due);
  }

  void refuse(size_t index, const RequestError& error) {
    const sim::SimRequest& request = workload_.requests[index];
    const std::lock_guard lock(outcome_->mutex);
    if (skips_too_long_ && error.code == RequestErrorCode::kTooLong) {
      if (outcome_->skipped++ == 0) {
        outcome_->first_skipped = fmt::format("in line {} of the trace: {}", request.line, error.message);
      }
      return;
    }
    if (index == 0) throw Error(error.message);
    outcome_->fail(error.message);
  }

  void give_up(size_t index, Nanos now) {
    size_t unsent = 0;
    source_.gave_up(index, now, [&](const sim::NumberedRequest& /*of*/) { ++unsent; });
    if (unsent == 0) return;
    progress_.advance(unsent);
    const std::lock_guard lock(outcome_->mutex);
    for (size_t i = 0; i < unsent; ++i)
      outcome_->fail("an earlier turn of its conversation was not answered");
  }

  startup::LocalEngine& local_;
  const sim::Workload& workload_;
  sim::WorkloadSource source_;
  bool skips_too_long_;
  Progress progress_;
  std::shared_ptr<Outcome> outcome_ = std::make_shared<Outcome>();
  Nanos start_ = 0;
  size_t open_ = 0;
};

/// Says on standard error what did not go well. Returns the exit status.
int judge(const Outcome& outcome, size_t left, size_t all, bool interrupted) {
  std::fflush(stdout);
  if (outcome.skipped > 0) {
    fmt::print(stderr, "quire: {} of {} requests were skipped, the first {}\n", outcome.skipped, all,
               outcome.first_skipped);
  }
  if (outcome.failed > 0) {
    fmt::print(stderr, "quire: {} requests failed; the first: {}\n", outcome.failed, outcome.first_error);
  }
  if (interrupted) {
    fmt::print(stderr, "quire: interrupted; {} of {} requests had not ended\n", left, all);
    return 128 + SIGINT;
  }
  if (outcome.failed > 0) return 1;
  if (!outcome.ttft.empty()) return 0;
  fmt::print(stderr, "quire: no request finished\n");
  return 1;
}

int throughput(ThroughputOptions& options) {
  set_log_level(options.as_json ? LogLevel::kWarning : LogLevel::kInfo);
  startup::LocalEngine local(options.engine, startup::model_name(options.engine.model.model));
  const auto count_tokens = [&](std::string_view text) {
    return local.tokenizer->encode(text, false).size();
  };
  const sim::Workload workload = make_workload(options.workload, local.facts.vocab_size, count_tokens);
  print_notes(workload);
  const bool has_trace = !options.workload.trace.empty();
  if (workload.requests.empty()) throw Error("--requests: the workload has no requests");
  if (has_trace) check_policies(options.engine.policies, workload);
  Load load(local, workload, has_trace);
  const double elapsed = load.run();
  const engine::EngineStats stats = local.engine->stats();
  const std::lock_guard lock(load.outcome().mutex);  // after an interrupt some requests go on
  print(load.outcome(), stats, elapsed, terminal_text(local.warning), options.as_json);
  return judge(load.outcome(), load.left(), workload.requests.size(),
               InterruptNote::interrupted().exchange(false));
}

}  // namespace

void add_throughput(const Flags& bench, Command& run) {
  auto options = std::make_shared<ThroughputOptions>();
  const Flags command = bench.add_command(
      "throughput", "Load the engine in real time, with a workload as simulate draws it or from a trace");
  command.footer(
      "\nPrompts are arbitrary tokens. quire simulate runs the same workload in virtual time. Try\n"
      "  quire bench throughput MODEL --requests 64 --prompt-len uniform:16:128 --output-len 64\n"
      "  quire bench throughput MODEL --rate 2 --shared-prefix-len 128 --scheduling-policy lpm\n"
      "  quire bench throughput MODEL --users 8 --think-time-ms exponential:1000 --turns 3\n"
      "Of a trace, requests that are too long are skipped and counted.");
  command.add_flag("--json", options->as_json, "One JSON object");
  add_workload_options(command, options->workload);
  add_conversation_options(command, options->workload);
  add_service_options(command, options->workload);
  add_engine_options(command, options->engine);
  add_device_options(command, options->engine);
  command.callback([options, command, &run] {
    const WorkloadOptions& workload = options->workload;
    refuse_idle_engine_flags(command, options->engine,
                             {.tenants = tenants_known(workload),
                              .priorities = priorities_known(workload),
                              .choices = workload.choices});
    check_workload_options(workload);
    refuse_idle_workload_flags(command, workload, options->engine.policies);
    run = [options] { return throughput(*options); };
  });
}

}  // namespace quire::cli
