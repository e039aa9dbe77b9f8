// calibrate: a cost model of this machine, for simulate and for a simulated device.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/log.h"
#include "base/output_file.h"
#include "bench/machine.h"
#include "cli/calibration_sweep.h"
#include "cli/commands.h"
#include "cli/engine_options.h"
#include "cli/flags.h"
#include "cli/idle_flags.h"
#include "cli/terminal.h"
#include "cli/version.h"
#include "sim/calibration.h"
#include "sim/step_log_file.h"
#include "startup/local_engine.h"
#include "startup/model_files.h"

namespace quire::cli {
namespace {

struct Options {
  startup::EngineOptions engine{.default_max_waiting = UINT32_MAX};
  std::vector<std::string> logs;
  std::string out = "cost.json";
  double seconds = 120;
  bool table = false;
};

/// The records to fit, and whose they are.
struct Measured {
  std::string model;
  std::string machine;
  std::vector<backend::StepRecord> records;
};

Measured read_logs(const std::vector<std::string>& paths) {
  Measured out;
  for (const std::string& path : paths) {
    sim::StepLogFile file = sim::read_step_log(path);
    if (!out.records.empty() && (file.model != out.model || file.device != out.machine)) {
      throw Error(
          fmt::format("{}: its steps are of {} ({}), those of {} of {} ({}): they do not fit together", path,
                      file.model, file.device, paths.front(), out.model, out.machine));
    }
    out.model = file.model;
    out.machine = file.device;
    out.records.insert(out.records.end(), file.records.begin(), file.records.end());
  }
  return out;
}

Measured measure(Options& options) {
  set_log_level(LogLevel::kWarning);
  StepCollector steps;
  Measured out;
  out.model = startup::model_name(options.engine.model.model);
  startup::LocalEngine local(options.engine, out.model, &steps);
  out.machine = fmt::format("{}; {}", local.backend->describe(), bench::machine_name());
  Progress progress("calibrate", 1000);
  uint64_t shown = 0;
  run_sweep(local, options.seconds, [&](double part) {
    const auto now = static_cast<uint64_t>(part * 1000);
    progress.advance(now - std::min(now, shown));
    shown = std::max(shown, now);
  });
  local.engine.reset();
  out.records = steps.records();
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
    Group& group =
        groups[{sim::kind_of(work), size_of(work.decoding), size_of(work.prefill_tokens), size_of(before)}];
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

int calibrate(Options& options) {
  check_output_file(options.out, backend::sim::kCostFile);
  const Measured measured = options.logs.empty() ? measure(options) : read_logs(options.logs);
  sim::Calibration of = sim::calibrate(measured.records);
  of.file.cost.model = measured.model;
  of.file.cost.machine = measured.machine;
  of.file.build = version();
  fmt::print("{}: {} steps, {}\n", measured.model, with_commas(measured.records.size()), measured.machine);
  print_errors(of);
  print_slow(of);
  if (options.table) print_table(measured.records, of);
  backend::sim::write_cost_file(options.out, of.file);
  fmt::print("\n{} is written. quire simulate --cost {} uses it.\n", options.out, options.out);
  return 0;
}

}  // namespace

void add_calibrate(const Flags& app, Command& run) {
  auto options = std::make_shared<Options>();
  const Flags command =
      app.add_command("calibrate", "Fit a model of the time of a step to this machine, for quire simulate");
  command.footer(
      "\nIt runs the engine on steps of all kinds for about two minutes; nothing else should run then.\n"
      "Or it fits step logs of real load. Try\n"
      "  quire calibrate MODEL -o cost.json --table\n"
      "  quire serve MODEL --step-log steps.log; quire calibrate MODEL --from steps.log -o cost.json\n"
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
      for (const char* flag : {"model", "--seconds"}) {
        refuse_if_given(command, flag, "with --from, which measures nothing");
      }
    }
    run = [options] { return calibrate(*options); };
  });
}

}  // namespace quire::cli
