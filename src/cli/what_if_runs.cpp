#include "cli/what_if_runs.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "base/machine_limits.h"
#include "cli/flags.h"
#include "cli/message_reader.h"
#include "cli/terminal.h"
#include "control/scheduler.h"

namespace quire::cli {
namespace {

constexpr size_t kMostLookedAt = 2'000'000;  // generated requests

/// The tokens of the shortest request, or of the first that is as short as `enough`; 0 if it is not known, as
/// there are too many to look at or there was an interrupt. Later turns of a conversation are longer than its
/// first.
uint64_t shortest_of(const SimulateOptions& options, uint64_t enough) {
  const std::unique_ptr<sim::RequestStream> requests = simulation_requests(options);
  uint64_t shortest = UINT64_MAX;
  size_t looked_at = 0;
  while (const sim::RequestPtr each = requests->next_first()) {
    shortest = std::min(shortest, uint64_t{each->request.prompt_length} + each->request.output_length);
    if (shortest <= enough) break;
    const bool too_many = options.workload.trace.empty() && ++looked_at == kMostLookedAt;
    if (too_many || InterruptNote::interrupted()) return 0;
  }
  return shortest;
}

}  // namespace

std::vector<std::string> arguments_of(const WhatIf& asked, const Combination& values) {
  std::vector<std::string> arguments;
  for (size_t i = 0; i < values.size(); ++i) {
    arguments.push_back(fmt::format("--{}={}", asked.axes[i].flag, values[i]));
  }
  return arguments;
}

SimulateOptions parse_run(const WhatIf& asked, const std::vector<std::string>& more, bool idle) {
  SimulateOptions options;
  Program program("quire", "");
  const Flags flags = program.flags().add_command("simulate", "");
  add_simulation_flags(flags, options);
  flags.callback([&] { settle_simulation(options, flags, idle); });
  std::vector<std::string> arguments = {"simulate"};
  arguments.insert(arguments.end(), asked.arguments.begin(), asked.arguments.end());
  arguments.insert(arguments.end(), more.begin(), more.end());
  const Program::Outcome outcome = program.parse(arguments);
  if (!outcome.error.empty()) {
    // Flags that are not of one simulation are not known here.
    constexpr std::string_view kNoFlag = "simulate: there is no flag '";
    if (outcome.error.starts_with(kNoFlag) && outcome.error.ends_with("--help lists them")) {
      const std::string_view flag = std::string_view(outcome.error).substr(kNoFlag.size());
      throw Error(fmt::format("--sweep: {} is no flag of simulate that can be swept",
                              flag.substr(0, flag.find('\''))));
    }
    throw Error(outcome.error.starts_with('-') ? outcome.error : "--sweep: " + outcome.error);
  }
  return options;
}

std::vector<SimulateOptions> parse_all(const WhatIf& asked, const std::vector<Combination>& all) {
  std::vector<SimulateOptions> options;
  std::optional<Error> idle;
  size_t refused = 0;
  for (const Combination& values : all) {
    const std::vector<std::string> arguments = arguments_of(asked, values);
    options.push_back(parse_run(asked, arguments, false));
    try {
      parse_run(asked, arguments, true);
    } catch (const Error& error) {
      ++refused;
      if (!idle) idle = error;
    }
  }
  if (refused == all.size()) throw Error(*idle);
  return options;
}

std::vector<std::string> why_none_fits(std::span<const SimulateOptions> options) {
  std::map<std::pair<std::string, std::optional<uint32_t>>, uint64_t> traces;  // and how much is read of them
  std::vector<std::string> out;
  for (const SimulateOptions& each : options) {
    const uint64_t room = control::Scheduler(simulation_config(each).scheduler).most_tokens();
    uint64_t shortest = 0;
    if (each.workload.trace.empty()) {
      shortest = shortest_of(each, room);
    } else {
      const auto [known, is_new] = traces.try_emplace({each.workload.trace, each.workload.requests});
      if (is_new) known->second = shortest_of(each, 0);
      shortest = known->second;
    }
    out.push_back(shortest <= room ? std::string()
                                   : fmt::format("the shortest has {} tokens, and there is room for {}",
                                                 with_commas(shortest), with_commas(room)));
  }
  return out;
}

std::optional<RunResult> simulate_run(const SimulateOptions& options, const sim::Slo& slo) {
  RunResult result{simulation_config(options), {}};
  sim::Simulation simulation(result.config, simulation_requests(options));
  const sim::ReportBuilder report(simulation, slo);
  simulation.stop_at(InterruptNote::interrupted());
  while (!InterruptNote::interrupted() && simulation.step()) {
  }
  if (InterruptNote::interrupted()) return std::nullopt;
  result.report = report.report();
  return result;
}

void for_all(size_t count, const std::function<void(size_t)>& work) {
  Progress progress("simulate", count);
  std::mutex mutex;
  std::exception_ptr failure;
  std::atomic<size_t> next = 0;
  const auto take = [&] {
    for (size_t i = next++; i < count && !InterruptNote::interrupted(); i = next++) {
      try {
        work(i);
        const std::lock_guard lock(mutex);
        progress.advance();
      } catch (...) {
        const std::lock_guard lock(mutex);
        if (!failure) failure = std::current_exception();
        next = count;
      }
    }
  };
  {
    std::vector<std::jthread> threads;
    const size_t more = std::min<size_t>(usable_cpus().threads, count) - 1;
    for (size_t i = 0; i < more; ++i) threads.emplace_back(take);
    take();
  }
  if (failure) std::rethrow_exception(failure);
}

}  // namespace quire::cli
