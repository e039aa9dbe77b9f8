#include "cli/time_notes.h"

#include <fmt/format.h>

#include "cli/sim_options.h"

namespace quire::cli {

void TimeNotes::take(const backend::sim::CostModel& cost) {
  const backend::sim::FittedCost* const fitted = cost.fitted();
  if (fitted == nullptr) return;
  sources_.insert(cost_source(cost));
  if (!fitted->warning.empty()) warnings_.insert(fitted->warning);
}

void TimeNotes::take(const sim::SimulationReport& report) {
  extrapolated_ += report.extrapolated;
  steps_ += report.totals.steps;
}

void TimeNotes::print() const {
  for (const std::string& source : sources_) fmt::print("\nThe times of steps are those of {}\n", source);
  if (const std::string text = sim::extrapolation_text(extrapolated_, steps_); !text.empty()) {
    fmt::print("\n{}\n", text);
  }
}

std::vector<std::string> TimeNotes::complaints() const {
  std::vector<std::string> out;
  for (const std::string& warning : warnings_) out.push_back(fmt::format("Warning: {}.", warning));
  if (const std::string text = sim::extrapolation_text(extrapolated_, steps_); !text.empty()) {
    out.push_back(text + ".");
  }
  return out;
}

}  // namespace quire::cli
