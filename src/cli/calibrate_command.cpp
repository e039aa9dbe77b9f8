// calibrate: a cost model of this machine, for simulate and for a simulated device.
#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include <fmt/chrono.h>
#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/log.h"
#include "base/machine_limits.h"
#include "base/machine_name.h"
#include "base/output_file.h"
#include "bench/fit_page.h"
#include "cli/calibration_sweep.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/sweep_plan.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "record/display_text.h"
#include "sim/calibration.h"
#include "sim/step_log_file.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"
#include "startup/model_outline.h"

namespace quire::cli {
namespace {

constexpr Nanos kProbedStep = 350'000'000;
constexpr uint32_t kMostBudget = 8192;       // where the device's speed decides it
constexpr uint64_t kMostOwnTokens = 16'384;  // of prompts that sequences do not share, see own_tokens()
constexpr double kCautiousRate = 1e11;       // operations a second of a machine whose speed is not known yet

struct CalibrateOptions {
  startup::EngineOptions engine{.policies = {.preemption = control::PreemptionKind::kSwap},
                                .default_max_waiting = UINT32_MAX};
  std::vector<std::string> logs;
  std::string out = "cost.json";
  double seconds = 120;
  bool table = false;
  std::string html;
};

/// The records to fit, and whose they are.
struct Measured {
  std::string model;
  std::string machine;
  std::string device;
  std::string warning;  // why the times are not what they seem
  std::string plan;     // what the sweep was, if there was one
  std::vector<backend::StepRecord> records;
  bool interrupted = false;  // by Ctrl-C, before the end of the sweep
};

/// Tells of a last line that was cut off. Throws Error if steps overlapped, naming the line.
void check_log(const sim::StepLogFile& file, const std::string& path) {
  if (file.cut_line > 0) {
    log_warning(fmt::format("{}: line {} is not whole, as where a server was killed: it is left out", path,
                            file.cut_line));
  }
  for (size_t i = 0; i < file.records.size(); ++i) {
    const backend::StepRecord& record = file.records[i];
    if (record.open == 1) continue;
    throw Error(
        fmt::format("{}: line {}: step {} was one of {} in flight: only steps one by one can be fitted "
                    "(--steps-in-flight 1)",
                    path, i + 2, record.step, record.open));
  }
}

Measured read_logs(const std::vector<std::string>& paths) {
  Measured out;
  for (const std::string& path : paths) {
    const sim::StepLogFile file = sim::read_step_log(path);
    check_log(file, path);
    const bool other = file.model != out.model || file.machine != out.machine || file.device != out.device;
    if (!out.records.empty() && other) {
      throw Error(fmt::format(
          "{}: its steps are of {} on {} ({}), those of {} of {} on {} ({}): they do not fit together", path,
          file.model, file.machine, file.device, paths.front(), out.model, out.machine, out.device));
    }
    out.model = file.model;
    out.machine = file.machine;
    out.device = file.device;
    if (!file.warning.empty()) out.warning = file.warning;
    out.records.insert(out.records.end(), file.records.begin(), file.records.end());
  }
  return out;
}

/// As blocks_for_sweep wants it, before there is an engine.
control::SchedulerConfig sweep_config(const startup::EngineOptions& engine,
                                      const backend::ModelShape& shape) {
  control::SchedulerConfig config;
  config.kv_windows = shape.kv_windows;
  config.block_size = engine.block_size;
  config.max_num_seqs = engine.max_num_seqs;
  config.max_num_batched_tokens = kMostBudget;
  config.watermark_bp = static_cast<uint32_t>(engine.policies.watermark * 100);
  return config;
}

/// The memory beside the weights, which need not be loaded for that. Throws Error if there is none.
uint64_t spare_memory(const startup::EngineOptions& engine, const startup::ModelOutline& model) {
  const auto free = available_memory();
  if (!free || engine.device->is_simulated || model.absent) return UINT64_MAX;
  const uint64_t weights = weight_sizes(model, engine.model.quantization).resident_bytes();
  if (weights < free->bytes) return free->bytes - weights;
  if (engine.model.pack_cache) return 0;  // they are mapped, and need not all stay in memory
  throw Error(
      fmt::format("calibrate: the weights take {}, and {} of memory are available ({}); --quantization "
                  "int8 or int4 takes less",
                  human_bytes(weights), human_bytes(free->bytes), free->source));
}

/// How many tokens of prompts a piece of the sweep may have before sequences share them: as many as even a
/// slow machine computes in a sixth of the time, since filling a pool for swaps takes as long, three times.
uint64_t own_tokens(const startup::ModelOutline& model, double seconds) {
  const double token = 2.0 * static_cast<double>(std::max<uint64_t>(1, model.shape.num_parameters));
  return static_cast<uint64_t>(
      std::min(static_cast<double>(kMostOwnTokens), seconds / 6 * kCautiousRate / token));
}

/// The pools that the sweep needs, unless flags say how large they are; before the weights are loaded, which
/// may take minutes. Throws Error that says what would do if they do not fit. Returns whether the length of
/// sequences was chosen here.
bool choose_pools(startup::EngineOptions& engine, double seconds) {
  const startup::ModelOutline model = startup::outline_of(engine.model.model);
  const bool chooses_length = engine.max_model_len == 0;
  uint32_t longest =
      chooses_length ? std::min(model.config.max_positions, kUsualLongest) : engine.max_model_len;
  if (longest < kLeastLength) {
    throw Error(fmt::format("{}: sequences of {} tokens are too short to measure: at least {}",
                            chooses_length ? "calibrate" : "--max-model-len", longest, kLeastLength));
  }
  const uint64_t spare = spare_memory(engine, model);
  if (engine.num_blocks > 0 || !engine.kv_cache_memory.empty()) return chooses_length;
  const backend::ModelShape shape = shape_with_kv(model, engine.kv_cache_dtype);
  const uint64_t block = shape.kv_block_bytes(engine.block_size);
  const bool host_too =
      engine.policies.preemption != control::PreemptionKind::kRecompute && !engine.policies.swap_space;
  for (const uint32_t wanted = longest;; longest /= 2) {
    const auto bytes_of = [&](uint64_t blocks) { return blocks * block * (host_too ? 2 : 1); };
    uint64_t blocks = blocks_for_sweep(sweep_config(engine, shape), longest, own_tokens(model, seconds));
    if (bytes_of(blocks) > spare / 2) blocks = blocks_for_sweep(sweep_config(engine, shape), longest, 0);
    const uint64_t bytes = bytes_of(blocks);
    if (bytes <= spare / 2 && blocks <= UINT32_MAX / engine.block_size) {
      if (longest < wanted) {
        fmt::print("Sequences have up to {} tokens, not {}: K/V of more does not fit into memory\n",
                   with_commas(longest), with_commas(wanted));
      }
      engine.num_blocks = static_cast<uint32_t>(blocks);
      engine.max_model_len = longest;
      if (host_too) engine.policies.swap_space = fmt::format("{}KiB", blocks * block / 1024 + 1);
      return chooses_length;
    }
    if (!chooses_length || longest / 2 < kLeastLength) {
      throw Error(
          fmt::format("calibrate: K/V for {} sequences of up to {} tokens takes {}, and half of the "
                      "memory beside the weights is {}; fewer --max-num-seqs, a shorter "
                      "--max-model-len or --kv-cache-dtype int8 take less",
                      engine.max_num_seqs, with_commas(longest), human_bytes(bytes), human_bytes(spare / 2)));
    }
  }
}

SweepPlan plan_for(startup::LocalEngine& local, double seconds, bool may_shorten) {
  control::SchedulerConfig config = local.config.scheduler;
  config.costs = local.backend->probe(kProbedStep).costs;  // nothing has run yet, so no block is in use
  const SweepPlan plan = plan_sweep(config, seconds, may_shorten);
  fmt::print("The sweep: {}\n", plan.summary);
  for (const std::string& note : plan.notes) fmt::print("  {}\n", note);
  std::fflush(stdout);
  return plan;
}

Measured measure(CalibrateOptions& options) {
  set_log_level(LogLevel::kWarning);
  const bool may_shorten = choose_pools(options.engine, options.seconds);
  // A step's own time does not show while another one is computed.
  options.engine.cost.steps_in_flight = options.engine.cost.steps_in_flight.value_or(1);
  StepCollector steps;
  Measured out;
  out.model = startup::model_name(options.engine.model.model);
  startup::LocalEngine local(options.engine, out.model, &steps);
  out.machine = machine_name();
  out.device = local.backend->describe();
  out.warning = local.warning;
  const SweepPlan plan = plan_for(local, options.seconds, may_shorten);
  out.plan = plan.summary;
  Progress progress("calibrate", 1000);
  uint64_t shown = 0;
  out.interrupted = !run_sweep(local, plan, options.seconds, [&](double part, const SweepPiece&) {
    const auto now = static_cast<uint64_t>(part * 1000);
    progress.advance(now - std::min(now, shown));
    shown = std::max(shown, now);
  });
  local.engine.reset();
  out.records = steps.records();
  if (out.interrupted) out.plan += "; interrupted before its end";
  return out;
}

void print_errors(const sim::Calibration& of) {
  fmt::print("\n{}\n", paint(stdout,
                             fmt::format("{:<10} {:>8} {:>16} {:>12} {:>8}", "steps", "number",
                                         "median error %", "p90 %", "bias %"),
                             fmt::emphasis::bold));
  for (const backend::sim::FitError& each : of.file.errors) {
    if (each.steps == 0) {
      fmt::print("{:<10} {:>8} none was seen: their times are extrapolated\n", each.kind, 0);
      continue;
    }
    fmt::print("{:<10} {:>8} {:>16.1f} {:>12.1f} {:>+8.1f}\n", each.kind, each.steps, 100 * each.median,
               100 * each.p90, 100 * each.bias);
  }
  fmt::print("Each step is compared with a fit that did not see it.\n");
}

void print_slow(const sim::Calibration& of) {
  if (of.slow.empty()) return;
  constexpr size_t kShown = 5;
  fmt::print(
      "\n{} of {} steps took far longer than such steps take, and were left out; something else ran:\n",
      of.file.left_out, of.file.left_out + of.file.steps);
  std::vector<sim::SlowSteps> worst = of.slow;
  std::ranges::sort(worst, std::greater(), [](const sim::SlowSteps& each) { return each.last - each.first; });
  worst.resize(std::min(worst.size(), kShown));
  for (const sim::SlowSteps& each : worst) {
    fmt::print("  steps {} to {}: up to {:.1f} times as long\n", each.first, each.last, each.factor);
  }
  if (of.slow.size() > kShown) fmt::print("  and {} more places\n", of.slow.size() - kShown);
  fmt::print("On average they took {:.1f} times as long; --cost-jitter draws them as often.\n",
             of.file.cost.slow_factor);
}

/// Steps of like work together: what was measured beside what was fitted.
void print_table(const std::vector<backend::StepRecord>& records, const sim::Calibration& of) {
  struct Group {
    std::vector<double> measured;
    std::vector<double> fitted;
  };
  std::map<std::tuple<std::string_view, int, int, int>, Group> groups;
  const auto size_of = [](uint64_t count) {
    return count == 0 ? -1 : static_cast<int>(std::bit_width(count)) - 1;
  };
  for (size_t i = 0; i < records.size(); ++i) {
    const backend::StepWork& work = records[i].work;
    const uint64_t before = work.decoding > 0 ? work.decode_context / work.decoding : 0;
    Group& group = groups[{backend::sim::step_kind(work), size_of(work.decoding),
                           size_of(work.prefill_tokens), size_of(before)}];
    group.measured.push_back(static_cast<double>(records[i].whole));
    group.fitted.push_back(of.fitted[i]);
  }
  const auto median = [](std::vector<double> values) {
    std::ranges::sort(values);
    return values[values.size() / 2] / 1e6;
  };
  const auto text = [](int size) { return size < 0 ? std::string("0") : fmt::format("{}+", 1ULL << size); };
  fmt::print("\n{}\n",
             paint(stdout,
                   fmt::format("{:<8} {:>9} {:>9} {:>9} {:>7} {:>12} {:>10} {:>8}", "kind", "decoding",
                               "prompt", "context", "steps", "measured ms", "fitted", "%"),
                   fmt::emphasis::bold));
  for (const auto& [key, group] : groups) {
    const double measured = median(group.measured);
    const double fitted = median(group.fitted);
    fmt::print("{:<8} {:>9} {:>9} {:>9} {:>7} {:>12.3f} {:>10.3f} {:>+8.1f}\n", std::get<0>(key),
               text(std::get<1>(key)), text(std::get<2>(key)), text(std::get<3>(key)), group.measured.size(),
               measured, fitted, 100 * (fitted / measured - 1));
  }
}

void write_page(const CalibrateOptions& options, const Measured& measured, const sim::Calibration& of) {
  bench::PageFacts facts{{"model", record::valid_utf8(measured.model)},
                         {"machine", record::valid_utf8(measured.machine)},
                         {"device", record::valid_utf8(of.file.device)},
                         {"cost model", record::valid_utf8(options.out)},
                         {"written", fmt::format("{:%Y-%m-%d %H:%M} UTC by quire {}",
                                                 fmt::gmtime(std::chrono::system_clock::now()), version())}};
  for (const std::string& log : options.logs) facts.emplace_back("step log", record::valid_utf8(log));
  if (!measured.plan.empty()) facts.emplace_back("sweep", measured.plan);
  write_output_file(options.html, bench::fit_page_kind(), bench::fit_page(of, measured.records, facts));
}

int calibrate(CalibrateOptions& options) {
  check_output_file(options.out, backend::sim::kCostFile);
  check_output_file(options.html, bench::fit_page_kind());
  std::vector<OutputFile> outputs = startup::output_files(options.engine);
  outputs.insert(outputs.end(), {{"--out", options.out}, {"--html", options.html}});
  refuse_same_file(outputs);
  const Measured measured = options.logs.empty() ? measure(options) : read_logs(options.logs);
  constexpr int kInterrupted = 128 + SIGINT;
  if (measured.interrupted && measured.records.size() < sim::kLeastSteps) {
    fmt::print(stderr, "quire: interrupted; nothing was fitted: {} were measured, and a fit needs {}\n",
               record::plural(measured.records.size(), "step"), sim::kLeastSteps);
    return kInterrupted;
  }
  sim::Calibration of = sim::calibrate(measured.records);
  of.file.cost.model = measured.model;
  of.file.cost.machine = measured.machine;
  of.file.device = measured.device;
  if (!measured.warning.empty())
    of.file.device += fmt::format("{}{}", backend::sim::kKeptWarning, measured.warning);
  of.file.build = version();
  fmt::print("{}: {} steps, {}, {}\n", terminal_text(measured.model), with_commas(measured.records.size()),
             terminal_text(measured.machine), terminal_text(of.file.device));
  if (of.samples_apart) fmt::print("Sampling has a cost of its own: that foresees steps better\n");
  print_errors(of);
  print_slow(of);
  if (options.table) print_table(measured.records, of);
  backend::sim::write_cost_file(options.out, of.file);
  if (!options.html.empty()) write_page(options, measured, of);
  fmt::print("\n{} is written. quire simulate --cost {} uses it.\n", options.out, options.out);
  if (!measured.interrupted) return 0;
  std::fflush(stdout);
  fmt::print(stderr, "quire: interrupted; the fit is of the {} that were measured by then\n",
             record::plural(measured.records.size(), "step"));
  return kInterrupted;
}

/// Refuses all but what a fit of step logs uses: the flags of an engine and of a sweep.
void refuse_idle_with_logs(const Flags& command) {
  constexpr std::array<std::string_view, 4> kUsed = {"--from", "--out", "--table", "--html"};
  for (const auto& [flag, values] : command.given()) {
    if (std::ranges::find(kUsed, flag) != kUsed.end()) continue;
    refuse_if_given(command, flag, "with --from, which measures nothing");
  }
}

}  // namespace

void add_calibrate(const Flags& app, Command& run) {
  auto options = std::make_shared<CalibrateOptions>();
  const Flags command =
      app.add_command("calibrate", "Fit a model of the time of a step to this machine, for quire simulate");
  command.footer(
      "\nIt runs the engine on steps of all kinds for about two minutes; nothing else should run then.\n"
      "Ctrl-C ends that, and what was measured so far is fitted.\n"
      "Or it fits step logs of real load. Try\n"
      "  quire calibrate MODEL -o cost.json --table\n"
      "  quire serve MODEL --step-log steps.log; quire calibrate --from steps.log -o cost.json\n"
      "  quire simulate --cost cost.json --rate 2 --prompt-len 300 --output-len 100");
  command.add_option("-o,--out", options->out, "The cost model, as JSON").value_name("FILE").show_default();
  command
      .add_option("--from", options->logs, "Fit this step log (serve --step-log) instead; may be given again")
      .value_name("FILE")
      .one_value();
  command.add_option("--seconds", options->seconds, "How long to measure; at least each kind of step once")
      .value_name("S")
      .show_default()
      .number_range(0, 86400);
  command.add_flag("--table", options->table,
                   "Print the fitted time beside the measured one, by kind of step");
  command.add_option("--html", options->html, "Plot the fit beside the measurement (one page, works offline)")
      .value_name("FILE");
  add_engine_options(command, options->engine);
  add_device_options(command, options->engine);
  command.find("model").required(false);
  command.callback([options, command, &run] {
    if (options->logs.empty()) {
      if (options->engine.model.model.empty()) {
        throw Error("MODEL is missing: give the model to measure, or step logs to fit (--from)");
      }
      refuse_idle_engine_flags(command, options->engine, {});
    } else {
      refuse_idle_with_logs(command);
    }
    run = [options] { return calibrate(*options); };
  });
}

}  // namespace quire::cli
