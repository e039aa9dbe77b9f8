#pragma once

#include <functional>
#include <string>
#include <vector>

#include "sim/report.h"
#include "sim/simulation.h"
#include "sim/slo.h"

// What a table of simulations says of each.
namespace quire::cli {

struct RunResult {
  sim::SimulationConfig config;
  sim::SimulationReport report;

  /// Without it the run has no times: those of its report are 0, which would look best.
  bool finished_any() const { return report.totals.finished > 0; }
};

/// A figure of a run: its head in a table and in a file, and its text, empty if the run has none.
struct Column {
  const char* head;
  const char* name;
  std::function<std::string(const RunResult&)> text;
};

/// `in_file`: with those for which a terminal has no room.
std::vector<Column> columns_of(const sim::Slo& slo, bool in_file);

}  // namespace quire::cli
