#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "sim/eviction_bound.h"
#include "sim/report.h"
#include "sim/simulation.h"
#include "sim/slo.h"

// What simulate prints of one run.
namespace quire::cli {

/// The head of what print_step prints.
inline constexpr const char* kStepHeader =
    "  step     time s  running  waiting  prefill  decode    KV %  shared %  preempted    done";

/// A line with the state after the last step.
void print_step(const sim::Simulation& simulation);

/// Tokens that prompts would hit at most with this pool, and with one that evicts nothing; and the same as
/// work.
struct HitBound {
  uint64_t pool = 0;
  uint64_t unbounded = 0;
  sim::EvictionBound::Work work;  // with this pool
};

/// `refusals`: sim::refusal_texts.
void print_summary(const sim::SimulationReport& report, const sim::SimulationConfig& config,
                   const std::vector<std::string>& refusals, const sim::Slo& slo,
                   const std::optional<HitBound>& bound);

/// If there are several: those with most requests.
void print_groups(const char* name, std::vector<sim::GroupOutcome> groups, const sim::Slo& slo);

void print_digests(const sim::SimulationReport& report);

}  // namespace quire::cli
