#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulation.h"
#include "sim/slo.h"

namespace quire::sim {

/// The lowest value that p percent of a list of times, in nanoseconds, do not exceed (nearest rank).
/// All 0 for an empty list.
struct Percentiles {
  Nanos mean = 0;  // rounded down
  Nanos p50 = 0;
  Nanos p90 = 0;
  Nanos p99 = 0;
  Nanos max = 0;
};
Percentiles percentiles(std::vector<Nanos> times);

/// What became of the requests of one tenant, or of one priority.
struct GroupOutcome {
  int64_t of = 0;  // the tenant, or the priority
  uint64_t requests = 0;
  uint64_t finished = 0;
  uint64_t refused = 0;
  uint64_t in_time = 0;  // as in SimulationReport
  uint64_t good = 0;
  uint64_t output_tokens = 0;
  Percentiles ttft;
  Percentiles tpot;
  Percentiles e2e;
};

/// The result of a simulation. Integers; the caller computes ratios.
struct SimulationReport {
  uint64_t requests = 0;
  uint64_t good = 0;           // that met the objectives; without any, all that finished
  uint64_t prompt_tokens = 0;  // of finished requests; so are the next six
  uint64_t output_tokens = 0;
  uint64_t in_time = 0;  // finished requests whose first token came by its deadline
  Percentiles queue;     // arrival to first admission
  Percentiles ttft;      // arrival to first token
  Percentiles tpot;      // time per token after the first, for requests with at least two
  Percentiles e2e;       // arrival to end
  Nanos elapsed = 0;     // from the start to the last end
  SimulationTotals totals;
  control::StepStats last;  // counts since the start
  uint64_t digest = 0;
  uint64_t decision_digest = 0;  // Scheduler::digest(), which quire explain --replay compares
  uint64_t extrapolated = 0;     // SimExecutor::extrapolated()

  double seconds() const { return static_cast<double>(elapsed > 0 ? elapsed : 1) / 1e9; }
  double per_second(uint64_t count) const { return static_cast<double>(count) / seconds(); }
};
SimulationReport make_report(const Simulation& simulation, const Slo& slo = {});

/// By tenant or by priority, in their order.
std::vector<GroupOutcome> outcomes_by_tenant(const Simulation& simulation, const Slo& slo);
std::vector<GroupOutcome> outcomes_by_priority(const Simulation& simulation, const Slo& slo);

/// The cost model with its constants, for people: "roofline: Llama-2-7b on NVIDIA A10G, 600 GB/s, ...".
std::string cost_text(const backend::sim::CostModel& of);

/// In a file: "too_long_for_pool".
std::string_view refusal_key(Refusal why);
/// "too long for the pool".
std::string_view refusal_text(Refusal why);
/// "257 too long for the pool, the first in line 31 of the trace with 70,123 tokens"; one text for each
/// reason for which requests were refused, in the order of Refusal.
std::vector<std::string> refusal_texts(const Simulation& simulation);

}  // namespace quire::sim
