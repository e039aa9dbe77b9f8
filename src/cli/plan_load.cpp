#include "cli/plan_load.h"

#include <algorithm>

#include "sim/simulation.h"
#include "startup/engine_options.h"

namespace quire::cli {
namespace {

constexpr uint64_t kMostPlannedUsers = 2048;
constexpr uint64_t kMostPlannedTokens = 500'000;  // of the answers that they get at once

/// The requests of a run: three of each user, and enough to tell 99 of a hundred.
uint64_t requests_of(uint64_t users) { return std::max<uint64_t>(3 * users, 200); }

sim::Workload workload_of(const backend::sim::CostModel& cost, const PlannedLoad& load, uint32_t users) {
  sim::WorkloadConfig config;
  config.users = users;
  config.num_requests = static_cast<uint32_t>(requests_of(users));
  config.prompt = {.low = load.prompt, .high = load.prompt};
  config.output = {.low = load.output, .high = load.output};
  sim::Workload workload = sim::make_workload(config);
  // What an answer takes when all users are served: its own tokens, and all prompts between them.
  const Nanos decode = cost.duration(startup::decode_work(users, load.prompt + load.output / 2 + 1));
  const Nanos prefill = cost.duration(backend::prompt_work_of(load.prompt));
  const double turn =
      static_cast<double>(load.output) * static_cast<double>(decode) + users * static_cast<double>(prefill);
  for (uint32_t i = 0; i < users; ++i) {
    workload.requests[i].arrival = static_cast<Nanos>(turn * i / users);
  }
  return workload;
}

sim::SimulationConfig config_of(const startup::Capacity& capacity, const startup::Demand& demand,
                                const backend::sim::CostModel& cost, uint32_t users) {
  sim::SimulationConfig config;
  config.cost = cost;
  control::SchedulerConfig& scheduler = config.scheduler;
  scheduler.block_size = demand.block_size;
  scheduler.kv_windows = capacity.shape.kv_windows;
  scheduler.max_num_seqs = users;
  scheduler.max_num_batched_tokens =
      startup::auto_step_tokens(cost.prefill_tokens_in(startup::kStepTime), users);
  scheduler.context_cost = cost.context_cost();
  scheduler.max_model_len = demand.context;
  scheduler.max_waiting = users;
  scheduler.enable_prefix_caching = false;
  scheduler.costs = cost.hints(users);
  const uint64_t used = startup::most_kv_bytes(capacity.shape, demand.block_size, users, demand.context,
                                               scheduler.max_num_batched_tokens);
  scheduler.num_blocks = static_cast<uint32_t>(
      std::min({capacity.blocks, used / capacity.block_bytes, uint64_t{UINT32_MAX} / demand.block_size}));
  return config;
}

}  // namespace

CarriedLoad carried_load(const startup::Capacity& capacity, const startup::Demand& demand,
                         const backend::sim::CostModel& cost, const PlannedLoad& load) {
  cost.check();
  CarriedLoad out;
  uint64_t most = std::clamp<uint64_t>(kMostPlannedTokens / load.output, 1, kMostPlannedUsers);
  if (!load.slo.ttft && !load.slo.e2e) most = std::min(most, capacity.paged.users);
  if (most == 0 || capacity.paged.users == 0) return out;
  uint64_t held = 0;
  const auto carries = [&](double at) {
    const auto users = static_cast<uint32_t>(at);
    const sim::Workload workload = workload_of(cost, load, users);
    sim::Simulation simulation(config_of(capacity, demand, cost, users), workload);
    const sim::ReportBuilder builder(simulation, load.slo);
    simulation.run();
    const sim::SimulationReport report = builder.report();
    const bool good = load.slo.attained(report.good, report.requests);
    if ((good && users > held) || (held == 0 && users == 1)) out.report = report;
    if (good) held = std::max<uint64_t>(held, users);
    return good;
  };
  const auto start = static_cast<double>(std::clamp<uint64_t>(capacity.paged.users, 1, 16));
  out.users = sim::find_load_limit(
      {.start = start, .least = 1, .most = static_cast<double>(most), .parts = 1, .precision = 0}, carries);
  out.by_memory = out.users.is_most && most == capacity.paged.users;
  return out;
}

}  // namespace quire::cli
