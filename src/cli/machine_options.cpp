#include "cli/machine_options.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <mutex>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/machine.h"
#include "base/amounts.h"
#include "base/error.h"
#include "base/machine_limits.h"
#include "base/machine_name.h"
#include "bench/machine.h"
#include "cli/did_you_mean.h"
#include "cli/flags.h"

namespace quire::cli {
namespace {

constexpr std::string_view kThisMachine = "cpu";
constexpr std::string_view kGiven = "given";

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char letter) { return static_cast<char>(std::tolower(letter)); });
  return text;
}

std::vector<std::string_view> machine_names() {
  std::vector<std::string_view> names = {kThisMachine};
  for (const backend::Machine& each : backend::known_machines()) names.push_back(each.name);
  return names;
}

/// What is wrong with a value of --machine.
std::string machine_fault(const std::string& given) {
  const std::vector<std::string_view> names = machine_names();
  const std::string name = lower(given);
  if (std::find(names.begin(), names.end(), name) != names.end()) return {};
  const std::string meant = did_you_mean(name, names);
  return fmt::format("'{}' is not one of {}{}{}", given, fmt::join(names, ", "), meant.empty() ? "" : "; ",
                     meant);
}

/// ChosenMachine::name.
std::string name_of(const MachineOptions& options) {
  const bool only_given = !options.machine && (options.bandwidth || options.flops);
  return only_given ? std::string(kGiven) : lower(options.machine.value_or(std::string(kThisMachine)));
}

/// Measures this machine.
backend::MachineSpeed probe_this_machine() {
  if (const auto memory = available_memory(); memory && memory->bytes < 2 * bench::kProbeBytes) {
    throw Error(
        fmt::format("--machine: measuring this one takes {}, and {} is free; give --bandwidth and "
                    "--flops instead",
                    human_bytes(bench::kProbeBytes), human_bytes(memory->bytes)));
  }
  ThreadPool pool(usable_cpus().threads);
  return bench::probe_speed(pool, kernels::best_isa_level());
}

}  // namespace

uint64_t free_memory() {
  if (const auto memory = available_memory()) return memory->bytes;
  throw Error("--memory: must be given, since this machine does not say how much is free");
}

std::string machine_title(const MachineOptions& options) {
  const std::string name = name_of(options);
  if (const backend::Machine* const card = backend::find_machine(name)) return std::string(card->title);
  return name == kGiven ? "as the flags say" : machine_name();
}

startup::ChosenMachine machine_of(const MachineOptions& options) {
  startup::ChosenMachine out;
  out.name = name_of(options);
  out.title = machine_title(options);
  const backend::Machine* card = backend::find_machine(out.name);
  out.embeddings_in_file = card == nullptr;
  if (options.memory) {
    out.memory = parse_bytes(*options.memory, "--memory");
  } else {
    out.memory = card != nullptr ? card->memory : free_memory();  // before a probe takes some
    out.memory_source = card != nullptr ? ", all that it has" : ", what is free here";
  }
  if (card != nullptr) {
    out.source = std::string(card->source);
    out.speed = card->speed;
  } else if (out.name == kGiven) {
    out.source = "--bandwidth and --flops";
  } else {
    out.source = "measured now";
    if (!options.bandwidth || !options.flops) out.speed = probe_this_machine();
  }
  if (options.bandwidth) out.speed.bandwidth = *options.bandwidth * 1e9;
  if (const double rate = options.flops.value_or(0) * 1e12; rate > 0) {
    out.speed.f32 = out.speed.f16 = out.speed.bf16 = out.speed.integer = rate;
  }
  // The host's memory is the same memory: each byte is read and written.
  if (card == nullptr) out.speed.host_link = out.speed.bandwidth * options.efficiency / 2;
  return startup::with_efficiency(std::move(out), options.efficiency);
}

const startup::ChosenMachine& machine_named(const std::string& name) {
  static std::mutex mutex;
  static std::map<std::string, startup::ChosenMachine> known;
  const std::lock_guard lock(mutex);
  const auto found = known.find(lower(name));
  if (found != known.end()) return found->second;
  MachineOptions options;
  options.machine = name;
  return known.emplace(lower(name), machine_of(options)).first->second;
}

void check_machine_name(const Flag& flag) {
  flag.check(machine_fault, fmt::format("{{{}}}", fmt::join(machine_names(), ",")));
}

Flag add_efficiency_option(const Flags& command, double& efficiency) {
  return command
      .add_option("--efficiency", efficiency,
                  "Share of its bandwidth and rates that the machine reaches; 1: all, an upper bound")
      .show_default()
      .number_range(0.001, 1)
      .value_name("SHARE");
}

void add_machine_options(const Flags& command, MachineOptions& options) {
  const char* group = "Machine";
  check_machine_name(
      command
          .add_option(
              "--machine", options.machine,
              "Whose peak rates and memory: cpu is this machine, measured in a second; the others are "
              "NVIDIA's cards by their data sheets. Default: cpu, or what --bandwidth and --flops say")
          .group(group)
          .value_name("NAME"));
  command
      .add_option("--memory", options.memory,
                  "Memory for weights and K/V; default: the machine's, or what is free of this one's")
      .group(group)
      .value_name("SIZE");
  command.add_option("--bandwidth", options.bandwidth, "GB/s that it reads from memory")
      .group(group)
      .value_name("GB/s")
      .number_range(0.001, 1e6);
  command
      .add_option("--flops", options.flops,
                  "TFLOP/s that it computes in matmuls, a multiply-add counting as two, whatever the format")
      .group(group)
      .value_name("TFLOP/s")
      .number_range(1e-6, 1e6);
  add_efficiency_option(command, options.efficiency).group(group);
}

}  // namespace quire::cli
