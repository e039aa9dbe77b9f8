// simulate: the server's scheduler under a virtual clock and without a model.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
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
#include "bench/page_frame.h"
#include "bench/run_data.h"
#include "bench/run_file.h"
#include "bench/run_page.h"
#include "cli/commands.h"
#include "cli/compare_runs.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/message_reader.h"
#include "cli/process.h"
#include "cli/sim_options.h"
#include "cli/simulate_options.h"
#include "cli/simulate_tables.h"
#include "cli/simulate_text.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "cli/what_if.h"
#include "record/config_json.h"
#include "record/display_text.h"
#include "record/run_record.h"
#include "sim/event_trace.h"
#include "sim/eviction_bound.h"
#include "sim/kept_requests.h"
#include "sim/report.h"
#include "sim/report_json.h"
#include "sim/simulation.h"
#include "sim/timeline.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr FileKind kResult{"result of quire simulate", "{\"scheduler\":{"};
struct SimulateFlags {
  SimulateOptions of;
  std::optional<uint32_t> every;
  std::string json_file;
  std::string html_file;
  std::string overlay;
  std::string request_csv;
  std::string step_csv;
  std::string event_trace;
  std::string decision_log;
  std::string decision_log_max;

  std::string slo_text;
  sim::Slo slo;
  std::vector<std::string> sweeps;
  bool find_capacity = false;
  std::optional<uint32_t> seeds;
  bool eviction_bound = false;
  std::string csv_file;
  std::vector<std::string> compared;

  bench::PageFacts given;  // the flags of the command line, without those of outputs

  bool is_what_if() const { return find_capacity || !sweeps.empty(); }
};

/// The shared prefixes of the demo's prompts.
std::string beginnings(const WorkloadOptions& workload) {
  const uint32_t length = workload.shared_prefix.value_or(0);
  if (length == 0) return "no two requests begin alike";
  return fmt::format("every request begins with one of {} prompts of {} tokens",
                     workload.shared_prefixes.value_or(1), length);
}

/// What follows a simulation.
struct Followers {
  Followers(const SimulateFlags& options, const std::string& costs_of, sim::Simulation& simulation)
      : report(simulation, options.slo), steps(options.step_csv, costs_of) {
    if (!options.json_file.empty() || !options.html_file.empty() || !options.request_csv.empty()) {
      requests.emplace(simulation);
    }
    if (!options.html_file.empty()) timeline.emplace();
    if (!options.event_trace.empty()) {
      simulation.listen(events.emplace(options.event_trace, simulation));
    }
    if (options.eviction_bound) simulation.listen(bound.emplace(simulation));
  }

  void take(const sim::Simulation& simulation) {
    steps.add(simulation);
    if (timeline) timeline->take(simulation);
  }
  std::optional<HitBound> hit_bound(uint32_t num_blocks) const {
    if (!bound) return std::nullopt;
    return HitBound{bound->best_tokens(num_blocks), bound->best_tokens(UINT32_MAX), bound->work(num_blocks)};
  }

  sim::ReportBuilder report;
  StepTable steps;
  std::optional<sim::KeptRequests> requests;  // for files that have all of them
  std::optional<sim::SimulationTimeline> timeline;
  std::optional<sim::EventTrace> events;
  std::optional<sim::EvictionBound> bound;
};

/// Runs to the end, or until Ctrl-C; then it returns true. Prints every N-th step, or shows its progress.
bool run_steps(sim::Simulation& simulation, uint32_t every, Followers& followers) {
  const InterruptNote note;
  Progress progress("simulate", every > 0 ? 0 : simulation.num_requests());
  uint64_t shown = 0;
  bool printed = true;
  simulation.stop_at(InterruptNote::interrupted());
  while (!InterruptNote::interrupted() && simulation.step()) {
    followers.take(simulation);
    printed = every > 0 && simulation.stats().step % every == 0;
    if (printed) print_step(simulation);
    const uint64_t done = simulation.totals().finished + simulation.totals().refused;
    if (done > shown) progress.advance(done - std::exchange(shown, done));
  }
  if (every > 0) {
    if (!printed) print_step(simulation);
    fmt::print("\n");
  }
  simulation.break_off();
  return InterruptNote::interrupted().exchange(false);
}

/// Says on standard error what makes the run a failure. Returns the exit status.
int judge(const sim::Simulation& simulation, bool interrupted) {
  const sim::SimulationTotals& totals = simulation.totals();
  std::fflush(stdout);
  if (interrupted) {
    fmt::print(stderr, "quire: interrupted; {} of {} requests had not ended\n",
               simulation.num_requests() - totals.finished - totals.refused, simulation.num_requests());
    return 128 + SIGINT;
  }
  if (totals.finished > 0) return 0;
  fmt::print(stderr, "quire: no request finished: {}\n", fmt::join(sim::refusal_texts(totals), "; "));
  return 1;
}

void check_outputs(const SimulateFlags& options) {
  check_output_file(options.json_file, kResult);
  check_output_file(options.html_file, bench::page_kind());
  check_output_file(options.request_csv, kRequestTable);
  check_output_file(options.step_csv, StepTable::kKind);
  check_output_file(options.event_trace, sim::EventTrace::kKind);
  check_output_file(options.decision_log);
  if (!options.decision_log.empty()) {
    record::RunWriter::check_place(options.decision_log, record::parse_log_limit(options.decision_log_max));
  }
  const OutputFile outputs[] = {{"--decision-log", options.decision_log},
                                {"--json", options.json_file},
                                {"--html", options.html_file},
                                {"--request-csv", options.request_csv},
                                {"--step-csv", options.step_csv},
                                {"--perfetto", options.event_trace}};
  refuse_same_file(outputs);
}

void print_head(const SimulateFlags& options, const sim::Simulation& simulation) {
  const control::SchedulerConfig& config = simulation.scheduler().config();
  fmt::print(
      "{} at a pool of {} of {}, {} and {} a step at most;\n"
      "{}. Time is virtual.\n\n",
      record::plural(simulation.num_requests(), "request"), record::plural(config.num_blocks, "block"),
      record::plural(config.block_size, "token"), record::plural(config.max_num_seqs, "sequence"),
      record::plural(config.max_num_batched_tokens, "token"), beginnings(options.of.workload));
}

/// The settings of a run that matter to it: the scheduler's, the costs', and the flags.
bench::PageFacts settings_of(const SimulateFlags& options, const sim::SimulationConfig& config) {
  bench::PageFacts out{{"written", fmt::format("by quire {}", version())}, {"time", "virtual"}};
  for (const auto& [flag, value] : options.given) out.emplace_back(flag, record::valid_utf8(value));
  for (const auto& [kind, of] :
       {std::pair<const char*, json::object>{"scheduler", record::to_json(config.scheduler)},
        std::pair<const char*, json::object>{"cost", sim::to_json(config.cost)}}) {
    for (const auto& [key, value] : of) {
      out.emplace_back(fmt::format("{}: {}", kind, std::string_view(key)),
                       value.is_string() ? std::string(value.get_string()) : json::serialize(value));
    }
  }
  return out;
}

json::object flags_json(const SimulateFlags& options) {
  json::object out;
  for (const auto& [flag, value] : options.given) out[flag] = record::valid_utf8(value);
  return out;
}

/// `other`: the run of --overlay.
void write_page(const SimulateFlags& options, const Followers& followers, const sim::SimulationConfig& config,
                const std::optional<HitBound>& bound, const std::optional<bench::RunData>& other) {
  bench::RunData run = bench::run_of(followers.report, *followers.requests, followers.timeline->timeline());
  run.settings = settings_of(options, config);
  if (bound) run.hit_bound = bound->pool;
  write_output_file(options.html_file, bench::page_kind(), bench::run_page(run, other ? &*other : nullptr));
}

void write_request_table(const SimulateFlags& options, const Followers& followers,
                         const sim::SimulationConfig& config) {
  if (options.request_csv.empty()) return;
  write_output_file(options.request_csv, kRequestTable,
                    request_table(*followers.requests, options.slo, cost_source(config.cost)));
}

void write_results(const SimulateFlags& options, const Followers& followers,
                   const sim::SimulationReport& report, const sim::SimulationConfig& config,
                   const std::optional<HitBound>& bound) {
  if (options.json_file.empty()) return;
  json::object root = to_json(report, config, options.slo);
  root["flags"] = flags_json(options);
  if (bound) {
    root["prefix_hit_tokens_bound"] = bound->pool;
    root["prefix_hit_tokens_unbounded"] = bound->unbounded;
    root["prompt_work"] = bound->work.prompts;
    root["prompt_work_saved"] = bound->work.saved;
    root["prompt_work_saved_bound"] = bound->work.saveable;
  }
  add_requests(root, followers.report, *followers.requests);
  write_output_file(options.json_file, kResult, json::serialize(root) + "\n");
}

/// `took`: the seconds of real time.
void print_results(const SimulateFlags& options, const Followers& followers,
                   const sim::SimulationReport& report, const sim::SimulationConfig& config,
                   const std::optional<HitBound>& bound, double took) {
  print_summary(report, config, sim::refusal_texts(report.totals), options.slo, bound);
  print_groups("tenant", followers.report.by_tenant(), options.slo);
  print_groups("priority", followers.report.by_priority(), options.slo);
  print_digests(report);
  if (const std::string source = cost_source(config.cost); !source.empty()) {
    fmt::print("\nThe times of steps are those of {}\n", source);
  }
  if (const std::string text = sim::extrapolation_text(report); !text.empty()) fmt::print("\n{}\n", text);
  // Not on standard output, which is the same every time.
  if (is_terminal(stderr)) {
    fmt::print(stderr, "simulated in {:.3f} s: {} tokens/s\n", took,
               with_commas(static_cast<uint64_t>(
                   static_cast<double>(report.totals.prefill_tokens + report.totals.decode_tokens) /
                   std::max(took, 1e-9))));
  }
}

/// Does each of `writes`, whatever becomes of the others, and then throws an Error of the last that failed;
/// those before it are said on standard error.
void do_all(std::initializer_list<std::function<void()>> writes) {
  std::string failed;
  for (const auto& write : writes) {
    try {
      write();
    } catch (const std::exception& error) {
      if (!failed.empty()) fmt::print(stderr, "quire: {}\n", failed);
      failed = describe(error);
    }
  }
  if (!failed.empty()) throw Error(failed);
}

/// Throws Error if the bound is not known of this K/V (sim/eviction_bound.h). A model says its windows
/// itself.
void check_bound(const SimulateFlags& options, const control::SchedulerConfig& config) {
  if (!options.eviction_bound || config.kv_windows == std::vector<uint32_t>{0}) return;
  throw Error(
      "--eviction-bound: is not known of a --model with a sliding window, which frees blocks of running "
      "sequences");
}

/// Why the times of a cost model may not be right; "" if nothing is known.
std::string warning_of(const backend::sim::CostModel& cost) {
  const backend::sim::FittedCost* const fitted = cost.fitted();
  return fitted == nullptr ? std::string() : fitted->warning;
}

int simulate(SimulateFlags& options) {
  if (options.of.demo) use_demo_workload(options.of.workload);
  const sim::SimulationConfig config = simulation_config(options.of);
  check_bound(options, config.scheduler);
  check_outputs(options);
  std::optional<bench::RunData> other;
  if (!options.overlay.empty()) other = bench::read_run(options.overlay);
  std::unique_ptr<sim::RequestStream> requests = simulation_requests(options.of);
  print_notes(requests->settings());
  const control::Scheduler checked(config.scheduler);  // before there is a log of it
  std::unique_ptr<record::RunWriter> record;
  if (!options.decision_log.empty()) {
    record = std::make_unique<record::RunWriter>(
        options.decision_log, record::parse_log_limit(options.decision_log_max), warning_of(config.cost));
  }
  sim::Simulation simulation(config, std::move(requests), record.get());
  const auto start = std::chrono::steady_clock::now();
  const uint32_t every = options.every.value_or(options.of.demo ? 10 : 0);
  if (options.of.demo) print_head(options, simulation);
  if (every > 0) fmt::print("{}\n", paint(stdout, kStepHeader, fmt::emphasis::bold));
  Followers followers(options, cost_source(config.cost), simulation);
  const bool interrupted = run_steps(simulation, every, followers);
  const std::optional<HitBound> bound = followers.hit_bound(config.scheduler.num_blocks);
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const sim::SimulationReport report = followers.report.report();
  print_results(options, followers, report, config, bound, took);
  const auto check_record = [&] {
    if (record != nullptr && record->failed()) throw file_error(options.decision_log, "cannot be written");
  };
  do_all({[&] { write_request_table(options, followers, config); },
          [&] { write_results(options, followers, report, config, bound); },
          [&] {
            if (followers.timeline) write_page(options, followers, config, bound, other);
          },
          [&] { followers.steps.end(); },
          [&] {
            if (followers.events) followers.events->end();
          },
          check_record});
  return judge(simulation, interrupted);
}

// ---- the flags ----

/// Flags of a single run only.
constexpr const char* kSingleRunFlags[] = {"--every",       "--decision-log",  "--decision-log-max",
                                           "--request-csv", "--step-csv",      "--overlay",
                                           "--perfetto",    "--eviction-bound"};

WhatIf what_if(const SimulateFlags& options, const Flags& command) {
  WhatIf asked;
  for (const std::string& text : options.sweeps) {
    asked.axes.push_back(sim::parse_sweep(text));
    if (command.is_given("--" + asked.axes.back().flag)) {
      throw Error(fmt::format("--sweep: --{} is given too", asked.axes.back().flag));
    }
  }
  SimulateOptions scratch;
  Program simulation("", "");
  add_simulation_flags(simulation.flags(), scratch);
  asked.arguments = command.arguments_for(simulation.flags());
  asked.slo = options.slo;
  asked.find_capacity = options.find_capacity;
  asked.seeds = options.seeds.value_or(asked.seeds);
  asked.csv_file = options.csv_file;
  asked.json_file = options.json_file;
  asked.html_file = options.html_file;
  asked.settings = options.given;
  return asked;
}

/// The flags as they were given, but for those that say what is written.
bench::PageFacts given_settings(const Flags& command) {
  constexpr std::string_view kOutputs[] = {
      "--eviction-bound",   "--every",       "--json",     "--html",
      "--overlay",          "--request-csv", "--step-csv", "--decision-log",
      "--decision-log-max", "--csv",         "--perfetto"};
  bench::PageFacts given = command.given();
  std::erase_if(given, [&](const auto& flag) { return std::ranges::count(kOutputs, flag.first) > 0; });
  return given;
}

/// Throws Error naming a flag that makes no sense with the others.
void settle(SimulateFlags& options, const Flags& command) {
  if (!options.compared.empty()) return settle_compare(command);
  if (!options.slo_text.empty()) options.slo = sim::Slo::parse(options.slo_text, "--slo");
  if (options.find_capacity && !options.slo.any()) {
    throw Error("--find-capacity: needs --slo, say ttft=500ms,tpot=50ms,attainment=99");
  }
  if (options.html_file.empty()) refuse_if_given(command, "--overlay", "without --html");
  if (!options.of.enable_prefix_caching) {
    refuse_if_given(command, "--eviction-bound", "with --no-enable-prefix-caching");
  }
  if (options.of.sliding_window > 0 && options.eviction_bound) {
    throw Error(
        "--eviction-bound: is not known with --sliding-window, which frees blocks of running sequences");
  }
  if (!options.find_capacity) refuse_if_given(command, "--seeds", "without --find-capacity");
  if (!options.is_what_if()) {
    refuse_if_given(command, "--csv", "without --sweep or --find-capacity; one run has --request-csv");
    settle_simulation(options.of, command);
    return;
  }
  for (const char* flag : kSingleRunFlags) {
    refuse_if_given(command, flag, "with --sweep or --find-capacity, which run many times");
  }
}

/// What there is besides the simulation itself.
void add_output_flags(const Flags& command, SimulateFlags& options) {
  command.add_option("--every", options.every, "Print every N-th step; 0: none (default 0, demo 10)")
      .value_name("N");
  const auto add_file = [&](const char* name, std::string& file, const char* help) {
    return command.add_option(name, file, help).value_name("FILE");
  };
  add_file("--json", options.json_file, "Write all results, and a record of each request");
  add_file("--html", options.html_file, "Write an HTML page with plots (one file, works offline)");
  add_overlay_option(command, options.overlay);
  add_file("--request-csv", options.request_csv, "Write a row of figures for each request");
  add_file("--step-csv", options.step_csv, "Write a row of figures for each step");
  add_file("--perfetto", options.event_trace,
           "Write the run as a trace for ui.perfetto.dev: steps, requests with their phases, preemptions, "
           "blocks");
  add_file("--decision-log", options.decision_log,
           "Record every decision of the scheduler and its inputs, for quire explain; only its "
           "owner may read the log");
  add_log_limit_option(command, options.decision_log_max);
}

void add_what_if_flags(const Flags& command, SimulateFlags& options) {
  const char* group = "What if";
  add_slo_option(command, options.slo_text);
  command
      .add_option(
          "--sweep", options.sweeps,
          "Run with each value of a flag: FLAG=VALUE,VALUE,..., FLAG=LOW..HIGH or FLAG=LOW..HIGH:STEP, "
          "for instance rate=1..40 or scheduling-policy=fcfs,srpt. Several: all combinations, on all "
          "CPUs, and one table")
      .one_value()
      .group(group)
      .value_name("FLAG=VALUES");
  command
      .add_flag(
          "--find-capacity", options.find_capacity,
          "Find the largest --rate that meets --slo (of a trace: --trace-speed; of --users or --agents: "
          "the number of users), for each combination of --sweep. Without --requests each run has as "
          "many as arrive in 20 times the longest limit, and at least 1000")
      .group(group);
  command.add_option("--seeds", options.seeds, "Searches with so many seeds, from --seed on (default 5)")
      .group(group)
      .range(1, 1000)
      .value_name("N");
  command.add_option("--csv", options.csv_file, "Also write the table of --sweep or --find-capacity")
      .group(group)
      .value_name("FILE");
}

}  // namespace

void add_simulate(const Flags& app, Command& run) {
  auto options = std::make_shared<SimulateFlags>();
  const Flags command =
      app.add_command("simulate", "Run the scheduler on a workload, in virtual time and without a model");
  command.footer(
      "\nThe same flags give the same lines, times and digest on every machine. For --swap-space a token's\n"
      "K/V is taken to be 128 KiB (Llama 3 8B in bf16), unless --model says. Try\n"
      "  quire simulate --demo\n"
      "  quire simulate --demo --preemption-mode swap --decision-log demo.log; quire explain demo.log\n"
      "  quire simulate --rate 12 --prompt-len lognormal:400:0.8 --output-len uniform:20:300 --every 200\n"
      "  quire simulate --users 40 --think-time-ms exponential:5000 --turns uniform:1:8 --requests 2000\n"
      "  quire simulate --agents --users 8 --num-blocks 20000\n"
      "  quire simulate --trace conversation_trace.jsonl --num-blocks 65536 --json out.json\n"
      "  quire simulate --cost machine.json --sweep rate=1..20 --sweep scheduling-policy=fcfs,srpt\n"
      "  quire simulate --cost machine.json --find-capacity --slo ttft=500ms,tpot=50ms --rate 2\n"
      "  quire simulate --machine a10g --model Llama-2-7b --rate 1 --slo ttft=2s,tpot=100ms\n"
      "  quire simulate --rate 2 --json a.json; quire simulate --rate 3 --json b.json --html b.html\n"
      "  quire simulate --compare a.json b.json --html both.html\n"
      "A trace in CSV or JSON lines may say ttft_deadline_ms, priority and tenant of each request.");
  add_output_flags(command, *options);
  command
      .add_option(
          "--compare", options->compared,
          "Run nothing: compare two results of simulate --json or bench serve --json, figure by figure "
          "and request by request; with --json and --html also in files")
      .values(2)
      .value_name("FILE FILE");
  command.add_flag(
      "--eviction-bound", options->eviction_bound,
      "Also say how many prefix hits an eviction policy that knows the future would have (Belady)");
  add_what_if_flags(command, *options);
  add_simulation_flags(command, options->of);
  command.callback([options, command, &run] {
    settle(*options, command);
    options->given = given_settings(command);
    if (!options->compared.empty()) {
      run = [options] {
        return compare_runs(
            {options->compared[0], options->compared[1], options->json_file, options->html_file});
      };
    } else if (options->is_what_if()) {
      run = [asked = what_if(*options, command)] { return run_what_if(asked); };
    } else {
      run = [options] { return simulate(*options); };
    }
  });
}

}  // namespace quire::cli
