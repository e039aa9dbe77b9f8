// How fast the scheduler runs under the virtual clock: simulated tokens a second on one thread, everything
// included (plan, simulated execution, commit, digest).
#include <algorithm>
#include <string_view>

#include <benchmark/benchmark.h>

#include "backend/sim/cost_model.h"
#include "sim/simulation.h"

namespace quire {
namespace {

constexpr uint32_t kPrompt = 256;
constexpr uint32_t kOutput = 2000;

/// As many terms as a fit has, and a piece for each power of two.
backend::sim::FittedCost fitted_cost() {
  backend::sim::FittedCost cost;
  for (uint64_t knot = 0; knot <= 2048; knot = std::max<uint64_t>(1, 2 * knot)) cost.knots.push_back(knot);
  for (backend::sim::PhaseCost* phase : {&cost.device, &cost.host}) {
    backend::sim::PhaseCost::for_each_term(*phase, [](std::string_view, double& term) { term = 100; });
    phase->token.assign(cost.knots.size(), 1000);
  }
  return cost;
}

/// Many sequences at once decode all the time; what counts is tokens decoded.
void decode_at(benchmark::State& state, const backend::sim::CostModel& cost) {
  const auto num_seqs = static_cast<uint32_t>(state.range(0));
  sim::Workload workload;
  workload.requests.assign(num_seqs, {.arrival = 0, .prompt_length = kPrompt, .output_length = kOutput});
  sim::SimulationConfig config;
  config.scheduler.num_blocks = num_seqs * ((kPrompt + kOutput) / 16 + 1) * 102 / 100 + 10;
  config.scheduler.max_num_seqs = num_seqs;
  config.scheduler.max_num_batched_tokens = std::max(8192U, num_seqs);
  config.scheduler.max_model_len = kPrompt + kOutput;
  config.cost = cost;
  uint64_t tokens = 0;
  for (auto _ : state) {
    sim::Simulation simulation(config, workload);
    simulation.run();
    tokens += simulation.totals().decode_tokens;
    if (simulation.totals().finished != num_seqs || simulation.stats().total_preemptions != 0) {
      state.SkipWithError("not what was to be measured");
    }
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}
void decode(benchmark::State& state) { decode_at(state, backend::sim::LinearCost()); }
BENCHMARK(decode)->Arg(1)->Arg(16)->Arg(128)->Arg(1024)->Unit(benchmark::kMillisecond);
void decode_fitted(benchmark::State& state) { decode_at(state, fitted_cost()); }
BENCHMARK(decode_fitted)->Arg(128)->Unit(benchmark::kMillisecond);

/// The mix of a service: random lengths, a shared prefix, a pool that preempts now and then.
void mixed(benchmark::State& state) {
  sim::WorkloadConfig load;
  load.num_requests = 2000;
  load.rate_thousandths = 20'000;
  load.prompt = sim::Lengths::parse("lognormal:400:0.8:2000", "");
  load.output = sim::Lengths::parse("lognormal:200:0.7:1000", "");
  load.prefix_length = 256;
  load.num_prefixes = 20;
  const sim::Workload workload = sim::make_workload(load);
  sim::SimulationConfig config;
  config.scheduler.num_blocks = 4096;
  config.scheduler.max_num_seqs = 128;
  config.scheduler.max_num_batched_tokens = 2048;
  config.scheduler.max_model_len = 4096;
  config.scheduler.max_waiting = load.num_requests;
  uint64_t tokens = 0;
  for (auto _ : state) {
    sim::Simulation simulation(config, workload);
    simulation.run();
    tokens += simulation.totals().decode_tokens + simulation.totals().prefill_tokens;
  }
  state.counters["tokens/s"] = benchmark::Counter(static_cast<double>(tokens), benchmark::Counter::kIsRate);
}
BENCHMARK(mixed)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace quire

BENCHMARK_MAIN();
