// simulate: the server's scheduler under a virtual clock and without a model.
#include <algorithm>
#include <chrono>
#include <csignal>
#include <fstream>
#include <functional>
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
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/message_reader.h"
#include "cli/sim_options.h"
#include "cli/simulate_options.h"
#include "cli/terminal.h"
#include "cli/text_table.h"
#include "cli/what_if.h"
#include "record/display_text.h"
#include "record/run_record.h"
#include "sim/report.h"
#include "sim/report_json.h"
#include "sim/simulation.h"

namespace quire::cli {
namespace {

namespace json = boost::json;

constexpr FileKind kResult{"result of quire simulate", "{\"scheduler\":{"};
constexpr FileKind kRequests{
    "requests of quire simulate",
    "request,line,tenant,priority,arrival_ns,admitted_ns,first_token_ns,finished_ns,ttft_ns,tpot_ns,"
    "prompt_tokens,output_tokens,cached_tokens,preemptions,in_time,good,refused\n"};

struct Options {
  SimulateOptions of;
  std::optional<uint32_t> every;
  std::string json_file;
  std::string request_csv;
  std::string step_csv;
  std::string decision_log;
  std::string decision_log_max;

  std::string slo_text;
  sim::Slo slo;
  std::vector<std::string> sweeps;
  bool find_capacity = false;
  std::optional<uint32_t> seeds;
  std::string csv_file;

  bool is_what_if() const { return find_capacity || !sweeps.empty(); }
};

// ---- output as text ----

double seconds(Nanos time) { return static_cast<double>(time) / 1e9; }

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

void print_summary(const sim::SimulationReport& report, const sim::SimulationConfig& config,
                   const std::vector<std::string>& refusals, const sim::Slo& slo) {
  const sim::SimulationTotals& totals = report.totals;
  const double elapsed = std::max(1e-9, seconds(report.elapsed));
  const auto line = [](const char* name, const std::string& value) {
    fmt::print("{:<22} {}\n", name, value);
  };
  line("times of steps", sim::cost_text(config.cost));
  if (const backend::sim::RooflineCost* const of = config.cost.roofline()) {
    line("memory", fmt::format("{} of weights; {} blocks of {} tokens, {} each: {}",
                               human_bytes(of->weight_bytes), with_commas(config.scheduler.num_blocks),
                               config.scheduler.block_size, human_bytes(of->block_bytes),
                               human_bytes(of->block_bytes * config.scheduler.num_blocks)));
  }
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
                                 with_commas(config.scheduler.num_blocks),
                                 percent(totals.block_micros, busy_micros * config.scheduler.num_blocks)));
  line("running", fmt::format("{} at most, {:.1f} on average; {} waiting at most", totals.peak_running,
                              percent(totals.running_micros, busy_micros) / 100, totals.peak_waiting));
  line("preemptions",
       fmt::format("{}; {} blocks to the host, {} back", with_commas(report.last.total_preemptions),
                   with_commas(totals.moved_out), with_commas(totals.moved_blocks - totals.moved_out)));
  line("evictions", with_commas(report.last.total_evictions));
  line("deadlines",
       fmt::format("{:.1f} % of first tokens in time", percent(report.in_time, totals.finished)));
  if (slo.any()) {
    line("objectives", fmt::format("{} of {} requests met {}: {:.2f} % ({}), {:.2f} good requests/s",
                                   with_commas(report.good), with_commas(report.requests), slo.text(),
                                   percent(report.good, report.requests),
                                   slo.attained(report.good, report.requests) ? "enough" : "too few",
                                   report.per_second(report.good)));
  }

  const std::pair<const char*, sim::Percentiles> times[] = {{"waiting to be admitted", report.queue},
                                                            {"to the first token", report.ttft},
                                                            {"per further token", report.tpot},
                                                            {"to the last token", report.e2e}};
  print_times(times);
}

void print_digests(const sim::SimulationReport& report) {
  fmt::print("\ndigest {:016x}\ndecisions {:016x}\n", report.digest, report.decision_digest);
}

/// If there are several: those with most requests.
void print_groups(const char* name, std::vector<sim::GroupOutcome> groups, const sim::Slo& slo) {
  constexpr size_t kMost = 12;
  if (groups.size() < 2) return;
  std::ranges::stable_sort(groups, std::greater(), &sim::GroupOutcome::requests);
  TextTable table{{name, "requests", "refused", "tokens", "TTFT ms", "p99", "TPOT ms", "p99", "E2E ms", "p99",
                   "in time %"},
                  {}};
  if (slo.any()) table.head.emplace_back("met %");
  const auto ms = [](Nanos time) { return fmt::format("{:.1f}", static_cast<double>(time) / 1e6); };
  for (const sim::GroupOutcome& of : std::span(groups).first(std::min(kMost, groups.size()))) {
    std::vector<std::string>& row = table.rows.emplace_back();
    row = {std::to_string(of.of),
           with_commas(of.requests),
           with_commas(of.refused),
           with_commas(of.output_tokens),
           ms(of.ttft.mean),
           ms(of.ttft.p99),
           ms(of.tpot.mean),
           ms(of.tpot.p99),
           ms(of.e2e.mean),
           ms(of.e2e.p99),
           fmt::format("{:.1f}", percent(of.in_time, of.finished))};
    if (slo.any()) row.push_back(fmt::format("{:.1f}", percent(of.good, of.requests)));
  }
  fmt::print("\n{}", table.text(1));
  if (groups.size() > kMost) {
    fmt::print("and {} more with fewer requests; --json has all\n", with_commas(groups.size() - kMost));
  }
}

/// The shared prefixes of the demo's prompts.
std::string beginnings(const WorkloadOptions& workload) {
  const uint32_t length = workload.shared_prefix.value_or(0);
  if (length == 0) return "no two requests begin alike";
  return fmt::format("every request begins with one of {} prompts of {} tokens",
                     workload.shared_prefixes.value_or(1), length);
}

/// Of each step, as it is made. Throws Error naming the file if it cannot be written.
class StepTable {
 public:
  explicit StepTable(std::string path) : path_(std::move(path)) {
    if (path_.empty()) return;
    file_.open(path_);
    file_ << kSteps.begins;
  }
  void add(const sim::Simulation& simulation) {
    if (path_.empty()) return;
    const control::StepStats& of = simulation.stats();
    file_ << fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{}\n", of.step, simulation.now(), of.running,
                         of.waiting, of.prefill_tokens, of.decode_tokens, of.blocks_total,
                         of.blocks_referenced, of.blocks_shared, of.swapped_out, of.swapped_in,
                         of.total_preemptions, of.total_evictions);
  }
  void end() {
    if (path_.empty()) return;
    file_.close();
    if (file_.fail()) throw file_error(path_, "cannot be written");
  }

  static constexpr FileKind kSteps{
      "steps of quire simulate",
      "step,end_ns,running,waiting,prefill_tokens,decode_tokens,blocks,blocks_held,blocks_shared,"
      "swapped_out,swapped_in,preemptions,evictions\n"};

 private:
  std::string path_;
  std::ofstream file_;
};

/// A row for each request; empty cells: it did not happen.
std::string request_table(const sim::Simulation& simulation, const sim::Slo& slo) {
  std::string out(kRequests.begins);
  const sim::Workload& workload = simulation.workload();
  for (size_t i = 0; i < simulation.records().size(); ++i) {
    const sim::RequestRecord& record = simulation.records()[i];
    const sim::SimRequest& request = workload.requests[i];
    const auto time = [](Nanos at) { return at < 0 ? std::string() : std::to_string(at); };
    const std::optional<Nanos> each = record.tpot(workload.choices);
    const bool done = record.finished >= 0;
    out += fmt::format("{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{},{}\n", i + 1, request.line,
                       request.tenant, request.priority, time(record.arrival), time(record.admitted),
                       time(record.first_token), time(record.finished), done ? time(record.ttft()) : "",
                       done && each ? time(*each) : "", record.prompt_tokens, record.output_tokens,
                       record.cached_tokens, record.preemptions, record.in_time ? 1 : 0,
                       done && slo.met_by(record.ttft(), each, record.e2e()) ? 1 : 0,
                       record.refused ? sim::refusal_key(*record.refused) : "");
  }
  return out;
}

/// Runs to the end, or until Ctrl-C; then it returns true. Prints every N-th step, or shows its progress.
bool run_steps(sim::Simulation& simulation, uint32_t every, StepTable& steps) {
  const InterruptNote note;
  Progress progress("simulate", every > 0 ? 0 : simulation.records().size());
  uint64_t shown = 0;
  bool printed = true;
  while (!InterruptNote::interrupted() && simulation.step()) {
    steps.add(simulation);
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

void check_outputs(const Options& options) {
  check_output_file(options.json_file, kResult);
  check_output_file(options.request_csv, kRequests);
  check_output_file(options.step_csv, StepTable::kSteps);
  check_output_file(options.decision_log);
  if (!options.decision_log.empty()) {
    record::RunWriter::check_place(options.decision_log, record::parse_log_limit(options.decision_log_max));
  }
  const OutputFile outputs[] = {{"--decision-log", options.decision_log},
                                {"--json", options.json_file},
                                {"--request-csv", options.request_csv},
                                {"--step-csv", options.step_csv}};
  refuse_same_file(outputs);
}

void print_head(const Options& options, const sim::Simulation& simulation) {
  const control::SchedulerConfig& config = simulation.scheduler().config();
  fmt::print(
      "{} at a pool of {} of {}, {} and {} a step at most;\n"
      "{}. Time is virtual.\n\n",
      record::plural(simulation.records().size(), "request"), record::plural(config.num_blocks, "block"),
      record::plural(config.block_size, "token"), record::plural(config.max_num_seqs, "sequence"),
      record::plural(config.max_num_batched_tokens, "token"), beginnings(options.of.workload));
}

void write_results(const Options& options, const sim::Simulation& simulation,
                   const sim::SimulationReport& report, const sim::SimulationConfig& config) {
  if (!options.request_csv.empty()) {
    write_output_file(options.request_csv, kRequests, request_table(simulation, options.slo));
  }
  if (options.json_file.empty()) return;
  json::object root = to_json(report, config, options.slo);
  add_requests(root, simulation, options.slo);
  write_output_file(options.json_file, kResult, json::serialize(root) + "\n");
}

int simulate(Options& options) {
  if (options.of.demo) use_demo_workload(options.of.workload);
  const sim::SimulationConfig config = simulation_config(options.of);
  check_outputs(options);
  const sim::Workload workload = simulation_workload(options.of);
  print_notes(workload);
  const control::Scheduler checked(config.scheduler);  // before there is a log of it
  std::unique_ptr<record::RunWriter> record;
  if (!options.decision_log.empty()) {
    record = std::make_unique<record::RunWriter>(options.decision_log,
                                                 record::parse_log_limit(options.decision_log_max));
  }
  sim::Simulation simulation(config, workload, record.get());
  const auto start = std::chrono::steady_clock::now();
  const uint32_t every = options.every.value_or(options.of.demo ? 10 : 0);
  if (options.of.demo) print_head(options, simulation);
  if (every > 0) fmt::print("{}\n", paint(stdout, kStepHeader, fmt::emphasis::bold));
  StepTable steps(options.step_csv);
  const bool interrupted = run_steps(simulation, every, steps);
  steps.end();
  if (record != nullptr && record->failed()) {
    throw file_error(options.decision_log, "cannot be written");
  }
  const double took = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const sim::SimulationReport report = sim::make_report(simulation, options.slo);
  const std::vector<std::string> refusals = sim::refusal_texts(simulation);
  print_summary(report, config, refusals, options.slo);
  print_groups("tenant", outcomes_by_tenant(simulation, options.slo), options.slo);
  print_groups("priority", outcomes_by_priority(simulation, options.slo), options.slo);
  print_digests(report);
  if (report.extrapolated > 0) {
    fmt::print(
        "\n{} of {} steps lie beyond what the cost model was fitted to (more tokens, sequences or context): "
        "their times are extrapolated\n",
        with_commas(report.extrapolated), with_commas(report.totals.steps));
  }
  // Not on standard output, which is the same every time.
  if (is_terminal(stderr)) {
    fmt::print(stderr, "simulated in {:.3f} s: {} tokens/s\n", took,
               with_commas(static_cast<uint64_t>(
                   static_cast<double>(report.totals.prefill_tokens + report.totals.decode_tokens) /
                   std::max(took, 1e-9))));
  }
  write_results(options, simulation, report, config);
  return judge(simulation, refusals, interrupted);
}

// ---- the flags ----

/// Flags of a single run only.
constexpr const char* kSingleRunFlags[] = {"--every", "--decision-log", "--decision-log-max", "--request-csv",
                                           "--step-csv"};

WhatIf what_if(const Options& options, const Flags& command) {
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
  return asked;
}

/// Throws Error naming a flag that makes no sense with the others.
void settle(Options& options, const Flags& command) {
  if (!options.slo_text.empty()) options.slo = sim::Slo::parse(options.slo_text, "--slo");
  if (options.find_capacity && !options.slo.any()) {
    throw Error("--find-capacity: needs --slo, say ttft=500ms,tpot=50ms,attainment=99");
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
void add_output_flags(const Flags& command, Options& options) {
  command.add_option("--every", options.every, "Print every N-th step; 0: none (default 0, demo 10)")
      .value_name("N");
  const auto add_file = [&](const char* name, std::string& file, const char* help) {
    return command.add_option(name, file, help).value_name("FILE");
  };
  add_file("--json", options.json_file, "Write all results, and a record of each request");
  add_file("--request-csv", options.request_csv, "Write a row of figures for each request");
  add_file("--step-csv", options.step_csv, "Write a row of figures for each step");
  add_file("--decision-log", options.decision_log,
           "Record every decision of the scheduler and its inputs, for quire explain; only its "
           "owner may read the log");
  add_log_limit_option(command, options.decision_log_max);
}

void add_what_if_flags(const Flags& command, Options& options) {
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
  auto options = std::make_shared<Options>();
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
      "A trace in CSV or JSON lines may say ttft_deadline_ms, priority and tenant of each request.");
  add_output_flags(command, *options);
  add_what_if_flags(command, *options);
  add_simulation_flags(command, options->of);
  command.callback([options, command, &run] {
    settle(*options, command);
    if (options->is_what_if()) {
      run = [asked = what_if(*options, command)] { return run_what_if(asked); };
    } else {
      run = [options] { return simulate(*options); };
    }
  });
}

}  // namespace quire::cli
