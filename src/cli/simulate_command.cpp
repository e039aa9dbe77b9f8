// simulate: the server's scheduler under a virtual clock and without a model.
#include <array>
#include <chrono>
#include <csignal>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <boost/json.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/file_error.h"
#include "base/output_file.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/message_reader.h"
#include "cli/policy_options.h"
#include "cli/sim_options.h"
#include "cli/terminal.h"
#include "cli/workload_options.h"
#include "record/config_json.h"
#include "record/display_text.h"
#include "record/run_record.h"
#include "sim/report.h"
#include "sim/simulation.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

/// Of K/V, to say what a block takes of --swap-space: 32 layers with 8 K/V heads of 128 in bf16 (Llama 3 8B).
constexpr uint64_t kTokenBytes = 131072;

constexpr FileKind kResult{"result of quire simulate", "{\"scheduler\":{"};

/// The options in the form of the flags; an empty one gets the default of the demo or of an ordinary run.
struct Options {
  bool demo = false;
  std::optional<uint32_t> num_blocks;
  std::optional<uint32_t> block_size;
  std::optional<uint32_t> max_num_seqs;
  std::optional<uint32_t> max_num_batched_tokens;
  std::optional<uint32_t> max_model_len;
  std::optional<uint32_t> max_waiting;
  uint32_t sliding_window = 0;
  bool enable_prefix_caching = true;

  WorkloadOptions workload;
  startup::PolicyOptions policies;
  startup::CostOptions cost;
  std::optional<uint32_t> every;
  std::string json_file;
  std::string decision_log;
  std::string decision_log_max;
};

control::SchedulerConfig scheduler_config(const Options& options) {
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
  config.costs = options.cost.model().hints(config.max_num_seqs);
  return config;
}

// ---- output as text ----

double seconds(Nanos time) { return static_cast<double>(time) / 1e9; }

double percent(uint64_t part, uint64_t whole) {
  return whole == 0 ? 0 : 100.0 * static_cast<double>(part) / static_cast<double>(whole);
}

constexpr const char* kStepHeader =
    "  step     time s  running  waiting  prefill  decode    KV %  shared %  preempted    done";

void print_step(const sim::Simulation& simulation) {
  const control::StepStats& stats = simulation.stats();
  fmt::print("{:>6} {:>10.3f} {:>8} {:>8} {:>8} {:>7} {:>7.1f} {:>9.1f} {:>10} {:>7}\n", stats.step,
             seconds(simulation.now()), stats.running, stats.waiting, stats.prefill_tokens,
             stats.decode_tokens, percent(stats.blocks_referenced, stats.blocks_total),
             percent(stats.blocks_shared, stats.blocks_total), stats.total_preemptions,
             simulation.totals().finished);
}

void print_summary(const sim::SimulationReport& report, const control::SchedulerConfig& config,
                   const std::vector<std::string>& refusals) {
  const sim::SimulationTotals& totals = report.totals;
  const double elapsed = std::max(1e-9, seconds(report.elapsed));
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<22} {}\n", name, value);
  };
  line("requests",
       fmt::format("{} finished, {} refused", with_commas(totals.finished), with_commas(totals.refused)));
  for (size_t i = 0; i < refusals.size(); ++i) line(i == 0 ? "refused" : "", refusals[i]);
  line("virtual time", fmt::format("{:.3f} s, {:.3f} s of it in {} steps", elapsed, seconds(totals.busy),
                                   with_commas(totals.steps)));
  line("throughput", fmt::format("{:.1f} output tokens/s, {:.2f} requests/s",
                                 static_cast<double>(report.output_tokens) / elapsed,
                                 static_cast<double>(totals.finished) / elapsed));
  line("tokens", fmt::format("{} in, {} out; computed {} prefill, {} decode",
                             with_commas(report.prompt_tokens), with_commas(report.output_tokens),
                             with_commas(totals.prefill_tokens), with_commas(totals.decode_tokens)));
  line("prefix hits",
       fmt::format("{:.1f} % of {} prompt tokens",
                   percent(report.last.total_prefix_hit_tokens, report.last.total_prefix_queried_tokens),
                   with_commas(report.last.total_prefix_queried_tokens)));
  const auto busy_micros = static_cast<uint64_t>(totals.busy) / 1000;
  line("K/V blocks", fmt::format("{} of {} at most, {:.1f} % on average", with_commas(totals.peak_blocks),
                                 with_commas(config.num_blocks),
                                 percent(totals.block_micros, busy_micros * config.num_blocks)));
  line("running", fmt::format("{} at most, {:.1f} on average; {} waiting at most", totals.peak_running,
                              percent(totals.running_micros, busy_micros) / 100, totals.peak_waiting));
  line("preemptions",
       fmt::format("{}; {} blocks to the host, {} back", with_commas(report.last.total_preemptions),
                   with_commas(totals.moved_out), with_commas(totals.moved_blocks - totals.moved_out)));
  line("evictions", with_commas(report.last.total_evictions));
  line("deadlines",
       fmt::format("{:.1f} % of first tokens in time", percent(report.in_time, totals.finished)));

  const std::pair<const char*, sim::Percentiles> times[] = {{"waiting to be admitted", report.queue},
                                                            {"to the first token", report.ttft},
                                                            {"per further token", report.tpot},
                                                            {"to the last token", report.e2e}};
  print_times(times);
  fmt::print("\ndigest {:016x}\ndecisions {:016x}\n", report.digest, report.decision_digest);
}

// ---- output as JSON ----

/// In the order of sim::Refusal.
constexpr const char* kRefusalKeys[] = {"too_long_for_model", "too_long_for_pool", "queue_full",
                                        "conversation"};
static_assert(std::size(kRefusalKeys) == sim::kNumRefusals);

json::object to_json(const sim::Percentiles& of) {
  return {{"mean", of.mean}, {"p50", of.p50}, {"p90", of.p90}, {"p99", of.p99}, {"max", of.max}};
}

json::object to_json(const backend::sim::CostModel& of) {
  if (const backend::sim::FittedCost* const fitted = of.fitted()) {
    return {{"model", fitted->model}, {"machine", fitted->machine}};
  }
  const backend::sim::LinearCost& cost = *of.linear();
  return {{"step_ns", cost.step},
          {"prefill_tokens_per_ms", cost.prefill_tokens_per_ms},
          {"decode_ns", cost.decode},
          {"decode_more_ns", cost.decode_more},
          {"swap_block_ns", cost.swap_block}};
}

void write_json(const std::string& path, const sim::Simulation& simulation,
                const sim::SimulationReport& report, const backend::sim::CostModel& cost, uint64_t seed) {
  const sim::SimulationTotals& totals = report.totals;
  json::object root;
  root["scheduler"] = quire::record::to_json(simulation.scheduler().config());
  root["cost"] = to_json(cost);
  if (cost.fitted() != nullptr) root["extrapolated_steps"] = simulation.executor().extrapolated();
  root["seed"] = seed;
  root["digest"] = fmt::format("{:016x}", report.digest);
  root["elapsed_ns"] = report.elapsed;
  root["requests"] = report.requests;
  root["finished"] = totals.finished;
  root["refused"] = totals.refused;
  json::object refused_by;
  for (size_t i = 0; i < sim::kNumRefusals; ++i) refused_by[kRefusalKeys[i]] = totals.refused_by[i];
  root["refused_by"] = std::move(refused_by);
  root["prompt_tokens"] = report.prompt_tokens;
  root["output_tokens"] = report.output_tokens;
  root["queue_ns"] = to_json(report.queue);
  root["ttft_ns"] = to_json(report.ttft);
  root["tpot_ns"] = to_json(report.tpot);
  root["e2e_ns"] = to_json(report.e2e);
  root["steps"] = totals.steps;
  root["busy_ns"] = totals.busy;
  root["prefill_tokens"] = totals.prefill_tokens;
  root["decode_tokens"] = totals.decode_tokens;
  root["prefix_queried_tokens"] = report.last.total_prefix_queried_tokens;
  root["prefix_hit_tokens"] = report.last.total_prefix_hit_tokens;
  root["preemptions"] = report.last.total_preemptions;
  root["evictions"] = report.last.total_evictions;
  root["moved_blocks"] = totals.moved_blocks;
  root["in_time"] = report.in_time;
  root["decision_digest"] = fmt::format("{:016x}", report.decision_digest);
  root["copies"] = report.last.total_copies;
  root["peak_running"] = totals.peak_running;
  root["peak_waiting"] = totals.peak_waiting;
  root["peak_blocks"] = totals.peak_blocks;
  root["block_microseconds"] = totals.block_micros;
  root["running_microseconds"] = totals.running_micros;
  root["record_fields"] = {"arrival_ns",    "admitted_ns",   "first_token_ns", "finished_ns", "prompt_tokens",
                           "output_tokens", "cached_tokens", "preemptions",    "refused",     "line"};
  json::array records;
  for (size_t i = 0; i < simulation.records().size(); ++i) {
    const sim::RequestRecord& record = simulation.records()[i];
    json::array fields{record.arrival,       record.admitted,      record.first_token,   record.finished,
                       record.prompt_tokens, record.output_tokens, record.cached_tokens, record.preemptions};
    fields.emplace_back(record.refused ? json::value(kRefusalKeys[static_cast<size_t>(*record.refused)])
                                       : json::value());
    fields.emplace_back(simulation.workload().requests[i].line);
    records.push_back(std::move(fields));
  }
  root["records"] = std::move(records);
  write_output_file(path, kResult, json::serialize(root) + "\n");
}

/// The shared prefixes of the demo's prompts.
std::string beginnings(const WorkloadOptions& workload) {
  const uint32_t length = workload.shared_prefix.value_or(0);
  if (length == 0) return "no two requests begin alike";
  return fmt::format("every request begins with one of {} prompts of {} tokens",
                     workload.shared_prefixes.value_or(1), length);
}

/// Runs to the end, or until Ctrl-C; then it returns true. Prints every N-th step, or shows its progress.
bool run_steps(sim::Simulation& simulation, uint32_t every) {
  const InterruptNote note;
  Progress progress("simulate", every > 0 ? 0 : simulation.records().size());
  uint64_t shown = 0;
  bool printed = true;
  while (!InterruptNote::interrupted() && simulation.step()) {
    printed = every > 0 && simulation.stats().step % every == 0;
    if (printed) print_step(simulation);
    const uint64_t done = simulation.totals().finished + simulation.totals().refused;
    if (done > shown) progress.advance(done - std::exchange(shown, done));
  }
  if (every > 0) {
    if (!printed) print_step(simulation);
    fmt::print("\n");
  }
  return InterruptNote::interrupted().exchange(false);
}

/// Says on standard error what makes the run a failure. Returns the exit status.
int judge(const sim::Simulation& simulation, const std::vector<std::string>& refusals, bool interrupted) {
  const sim::SimulationTotals& totals = simulation.totals();
  std::fflush(stdout);
  if (interrupted) {
    fmt::print(stderr, "quire: interrupted; {} of {} requests had not ended\n",
               simulation.records().size() - totals.finished - totals.refused, simulation.records().size());
    return 128 + SIGINT;
  }
  if (totals.finished > 0) return 0;
  fmt::print(stderr, "quire: no request finished: {}\n", fmt::join(refusals, "; "));
  return 1;
}

int simulate(Options& options) {
  if (options.demo) use_demo_workload(options.workload);
  const sim::SimulationConfig config{scheduler_config(options), options.cost.model(),
                                     static_cast<uint32_t>(options.cost.steps_in_flight),
                                     options.cost.jitter};
  check_output_file(options.json_file, kResult);
  check_output_file(options.decision_log);
  const uint64_t log_limit = record::parse_log_limit(options.decision_log_max);
  if (!options.decision_log.empty()) record::RunWriter::check_place(options.decision_log, log_limit);
  const OutputFile outputs[] = {{"--decision-log", options.decision_log}, {"--json", options.json_file}};
  refuse_same_file(outputs);
  const sim::Workload workload = make_workload(options.workload);
  if (workload.requests.empty()) throw Error("--requests: the workload has no requests");
  if (!options.workload.trace.empty()) check_policies(options.policies, workload);
  const control::Scheduler checked(config.scheduler);  // before there is a log of it
  std::unique_ptr<record::RunWriter> record;
  if (!options.decision_log.empty())
    record = std::make_unique<record::RunWriter>(options.decision_log, log_limit);
  sim::Simulation simulation(config, workload, record.get());
  const auto start = std::chrono::steady_clock::now();
  const uint32_t every = options.every.value_or(options.demo ? 10 : 0);
  if (options.demo) {
    fmt::print(
        "{} at a pool of {} of {}, {} and {} a step at most;\n"
        "{}. Time is virtual.\n\n",
        record::plural(workload.requests.size(), "request"),
        record::plural(config.scheduler.num_blocks, "block"),
        record::plural(config.scheduler.block_size, "token"),
        record::plural(config.scheduler.max_num_seqs, "sequence"),
        record::plural(config.scheduler.max_num_batched_tokens, "token"), beginnings(options.workload));
  }
  if (every > 0) fmt::print("{}\n", paint(stdout, kStepHeader, fmt::emphasis::bold));
  const bool interrupted = run_steps(simulation, every);
  if (record != nullptr && record->failed()) {
    throw file_error(options.decision_log, "cannot be written");
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const sim::SimulationReport report = sim::make_report(simulation);
  const std::vector<std::string> refusals = sim::refusal_texts(simulation);
  print_summary(report, config.scheduler, refusals);
  if (const uint64_t beyond = simulation.executor().extrapolated(); beyond > 0) {
    fmt::print(
        "\n{} of {} steps lie beyond what the cost model was fitted to (more tokens, sequences or context): "
        "their times are extrapolated\n",
        with_commas(beyond), with_commas(report.totals.steps));
  }
  // Not on standard output, which is the same every time.
  if (is_terminal(stderr)) {
    fmt::print(stderr, "simulated in {:.3f} s: {} tokens/s\n", took,
               with_commas(static_cast<uint64_t>(
                   static_cast<double>(report.totals.prefill_tokens + report.totals.decode_tokens) /
                   std::max(took, 1e-9))));
  }
  if (!options.json_file.empty()) {
    write_json(options.json_file, simulation, report, config.cost, options.workload.seed);
  }
  return judge(simulation, refusals, interrupted);
}

/// Throws Error naming a flag that makes no sense with the others.
void settle(const Options& options, const Flags& command) {
  if (options.demo) {
    for (const char* flag : {"--trace", "--agents"}) {
      refuse_if_given(command, flag, "with --demo, which has a workload of its own");
    }
  }
  const uint32_t at_once = options.max_num_seqs.value_or(0);  // 0: the default, which is several
  WorkloadOptions workload = options.workload;
  if (options.demo) use_demo_workload(workload);
  check_workload_options(workload);
  refuse_idle_policies(command, options.policies,
                       {.prefix_caching = options.enable_prefix_caching,
                        .max_num_seqs = at_once,
                        .tenants = tenants_known(workload),
                        .priorities = priorities_known(workload),
                        .choices = workload.choices});
  refuse_idle_workload_flags(command, workload, options.policies);
  refuse_idle_costs(command, options.policies.preemption != control::PreemptionKind::kRecompute, at_once);
  if (options.sliding_window > 0 && options.max_model_len.value_or(UINT32_MAX) <= options.sliding_window) {
    refuse_if_given(command, "--sliding-window", "unless it is less than --max-model-len");
  }
}

void add_scheduler_options(const Flags& command, Options& options) {
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

}  // namespace

void add_simulate(const Flags& app, Command& run) {
  auto options = std::make_shared<Options>();
  const Flags command =
      app.add_command("simulate", "Run the scheduler on a workload, in virtual time and without a model");
  command.footer(
      "\nThe same flags give the same lines, times and digest on every machine. For --swap-space a token's\n"
      "K/V is taken to be 128 KiB (Llama 3 8B in bf16). Try\n"
      "  quire simulate --demo\n"
      "  quire simulate --demo --preemption-mode swap --decision-log demo.log; quire explain demo.log\n"
      "  quire simulate --rate 12 --prompt-len lognormal:400:0.8 --output-len uniform:20:300 --every 200\n"
      "  quire simulate --users 40 --think-time-ms exponential:5000 --turns uniform:1:8 --requests 2000\n"
      "  quire simulate --agents --users 8 --num-blocks 20000\n"
      "  quire simulate --trace conversation_trace.jsonl --num-blocks 65536 --json out.json\n"
      "A trace in CSV or JSON lines may say ttft_deadline_ms, priority and tenant of each request.");
  command.add_flag("--demo", options->demo,
                   "A demonstration: a small pool, bursts, random arrivals and shared prefixes, step by "
                   "step; other flags change it");
  command.add_option("--every", options->every, "Print every N-th step; 0: none (default 0, demo 10)")
      .value_name("N");
  command.add_option("--json", options->json_file, "Write all results, and a record of each request")
      .value_name("FILE");
  command
      .add_option("--decision-log", options->decision_log,
                  "Record every decision of the scheduler and its inputs, for quire explain; only its "
                  "owner may read the log")
      .value_name("FILE");
  add_log_limit_option(command, options->decision_log_max);
  add_workload_options(command, options->workload);
  add_conversation_options(command, options->workload);
  add_service_options(command, options->workload);
  add_scheduler_options(command, *options);
  add_policy_options(command, options->policies);
  add_cost_options(command, options->cost);
  command.callback([options, command, &run] {
    settle(*options, command);
    run = [options] { return simulate(*options); };
  });
}

}  // namespace quire::cli
