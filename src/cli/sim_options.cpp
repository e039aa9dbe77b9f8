#include "cli/sim_options.h"

#include <fmt/format.h>

#include "backend/executor.h"
#include "base/error.h"
#include "cli/flags.h"
#include "cli/machine_options.h"
#include "cli/terminal.h"
#include "record/display_text.h"

namespace quire::cli {

void add_cost_options(const Flags& command, startup::CostOptions& options) {
  const auto add = [&](const char* name, uint64_t& value, const char* help, int64_t least, const char* type) {
    command.add_option(name, value, help)
        .group(kSimGroup)
        .value_name(type)
        .show_default()
        .range(least, int64_t{1'000'000'000});
  };
  const Flag machine = command.add_option_function(
      "--machine", [&options](const std::string& name) { options.machine = machine_named(name); },
      "The model on this machine, by arithmetic (docs/calibration.md), instead of the five numbers below: "
      "cpu is this one, measured in a second; the others are NVIDIA's cards by their data sheets");
  machine.group(kSimGroup).value_name("NAME");
  check_machine_name(machine);
  add_efficiency_option(command, options.efficiency).group(kSimGroup);
  command
      .add_option("--cost", options.cost_file,
                  "A cost model that quire calibrate has fitted, instead of the five numbers below")
      .group(kSimGroup)
      .excludes(machine)
      .value_name("FILE");
  const Flag jitter =
      command
          .add_flag("--cost-jitter", options.jitter,
                    "Let the times deviate as those that it was fitted to, slow steps too, by --seed")
          .group(kSimGroup)
          .needs(command.find("--cost"));
  command
      .add_option("--jitter-seed", options.jitter_seed,
                  "Draw these deviations with a seed of their own: another run of the same workload")
      .group(kSimGroup)
      .needs(jitter)
      .whole_number()
      .value_name("N");
  add("--cost-step-us", options.step_us, "Fixed time of a step", 0, "US");
  add("--cost-prefill-tokens-per-ms", options.prefill_tokens_per_ms, "Prompt tokens computed per millisecond",
      1, "N");
  add("--cost-decode-us", options.decode_us, "The first sequence that decodes in a step", 0, "US");
  add("--cost-decode-more-us", options.decode_more_us, "Each further sequence that decodes", 0, "US");
  add("--cost-swap-block-us", options.swap_block_us, "Swap of one K/V block, out or in", 0, "US");
  command
      .add_option("--steps-in-flight", options.steps_in_flight,
                  "Steps in flight at once, as for a device that computes while the next step is planned "
                  "(default 1; with --device cuda 2)")
      .group(kSimGroup)
      .range(1, int{backend::kMostOpenSteps})
      .value_name("N");
  command
      .add_flag("--check-kv", options.check_kv,
                "Write synthetic K/V in each step and read it back through the block tables: for changes of "
                "the scheduler. Slower; a mismatch ends the run")
      .group(kSimGroup);
}

std::string cost_source(const backend::sim::CostModel& cost) {
  const backend::sim::FittedCost* const fitted = cost.fitted();
  if (fitted == nullptr) return {};
  const auto name = [](const std::string& text, const char* otherwise) {
    return text.empty() ? std::string(otherwise) : record::printable(text);
  };
  return fmt::format("{} on {}{}", name(fitted->model, "an unnamed model"),
                     name(fitted->machine, "an unnamed machine"),
                     fitted->warning.empty() ? "" : "; warning: " + record::printable(fitted->warning));
}

Flag add_slo_option(const Flags& command, std::string& text) {
  return command
      .add_option(
          "--slo", text,
          "Objectives for each request, and how many per cent of all requests must meet them (default "
          "99): ttft=500ms,tpot=50ms,e2e=20s,attainment=99")
      .value_name("LIMIT,...");
}

void add_overlay_option(const Flags& command, std::string& file) {
  command
      .add_option(
          "--overlay", file,
          "Lay an earlier run over this one in the page of --html: what simulate --json or bench serve "
          "--json wrote")
      .value_name("FILE");
}

void print_times(std::span<const std::pair<const char*, sim::Percentiles>> times) {
  fmt::print("\n{}\n", paint(stdout,
                             fmt::format("{:<22} {:>10} {:>10} {:>10} {:>10} {:>10}", "milliseconds", "mean",
                                         "p50", "p90", "p99", "max"),
                             fmt::emphasis::bold));
  for (const auto& [name, of] : times) {
    fmt::print("{:<22}", name);
    for (const Nanos time : {of.mean, of.p50, of.p90, of.p99, of.max}) {
      fmt::print(" {:>10}", of.any ? fmt::format("{:.1f}", static_cast<double>(time) / 1e6) : "-");
    }
    fmt::print("\n");
  }
}

}  // namespace quire::cli
