#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "sim/simulation.h"
#include "sim/simulation_listener.h"
#include "sim/slo.h"
#include "sim/time_summary.h"

namespace quire::sim {

/// What became of the requests of one tenant, or of one priority.
struct GroupOutcome {
  int64_t of = 0;  // the tenant, or the priority
  uint64_t requests = 0;
  uint64_t finished = 0;
  uint64_t refused = 0;
  uint64_t in_time = 0;  // as in SimulationReport
  uint64_t good = 0;
  uint64_t output_tokens = 0;
  uint64_t ended() const { return finished + refused; }
  Percentiles ttft;
  Percentiles tpot;
  Percentiles e2e;
};

/// The result of a simulation. Integers; the caller computes ratios. All percentiles are exact if no more
/// than TimeSummary::kMostExact requests have finished, else within 0.1 %.
struct SimulationReport {
  uint64_t requests = 0;       // of the workload
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

  /// Of a run that was broken off, fewer than all: what it attains is known of these only.
  uint64_t ended() const { return totals.finished + totals.refused; }
  /// Those of which some may not have arrived.
  uint64_t unfinished() const { return requests - ended(); }
  double seconds() const { return static_cast<double>(elapsed > 0 ? elapsed : 1) / 1e9; }
  double per_second(uint64_t count) const { return static_cast<double>(count) / seconds(); }
};

/// Adds up what becomes of the requests of a simulation while it runs; keeps none of them. Each tenant and
/// each priority takes some 600 bytes, and what three TimeSummary need. Not thread-safe.
class ReportBuilder final : public SimulationListener {
 public:
  /// Listens to `simulation`, which must not have begun and must outlive it.
  explicit ReportBuilder(Simulation& simulation, const Slo& slo = {});
  ReportBuilder(const ReportBuilder&) = delete;
  ReportBuilder& operator=(const ReportBuilder&) = delete;

  /// Of the requests that have ended.
  SimulationReport report() const;
  /// Of those that have ended, by tenant or by priority, in their order; of all, once the simulation has
  /// ended or was broken off.
  std::vector<GroupOutcome> by_tenant() const;
  std::vector<GroupOutcome> by_priority() const;
  const Simulation& simulation() const { return simulation_; }
  const Slo& slo() const { return slo_; }

  void finished(const SimulatedRequest& of) override;
  void refused(const SimulatedRequest& of, Nanos now) override;
  void unfinished(const SimulatedRequest& of, Nanos now) override;

 private:
  /// Of requests that have finished.
  struct Times {
    TimeSummary ttft;
    TimeSummary tpot;
    TimeSummary e2e;

    void add(const RequestRecord& record, std::optional<Nanos> tpot_of_it, bool coarsely);
  };
  struct Group {
    GroupOutcome outcome;
    Times times;
  };
  using Groups = std::map<int64_t, Group>;
  std::array<Group*, 2> groups_of(const SimRequest& request);
  static std::vector<GroupOutcome> outcomes(const Groups& groups);

  const Simulation& simulation_;
  const Slo slo_;
  SimulationReport sums_;  // its counts of requests and tokens
  TimeSummary queue_;
  Times times_;
  Groups tenants_;
  Groups priorities_;
};

/// The cost model with its constants, for people and without control characters: "roofline: Llama-2-7b on
/// NVIDIA A10G, 600 GB/s, ...".
std::string cost_text(const backend::sim::CostModel& of);
/// "2 of 30 steps lie beyond what the cost model was fitted to (...): their times are extrapolated"; "" if
/// none do. `steps`: of a run, or of several.
std::string extrapolation_text(uint64_t extrapolated, uint64_t steps);
inline std::string extrapolation_text(const SimulationReport& report) {
  return extrapolation_text(report.extrapolated, report.totals.steps);
}

/// "Interrupted: 3 of 30 requests had not ended."; "" if all had.
std::string interruption_text(uint64_t unfinished, uint64_t requests);

/// In a file: "too_long_for_pool".
std::string_view refusal_key(Refusal why);
/// "too long for the pool".
std::string_view refusal_text(Refusal why);
/// "257 too long for the pool, the first in line 31 of the trace with 70,123 tokens"; one text for each
/// reason for which requests were refused, in the order of Refusal.
std::vector<std::string> refusal_texts(const SimulationTotals& totals);

}  // namespace quire::sim
