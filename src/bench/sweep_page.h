#pragma once

#include <string>
#include <vector>

#include "bench/page_frame.h"
#include "bench/plot.h"
#include "sim/report.h"
#include "sim/slo.h"

namespace quire::bench {

/// One run of a sweep.
struct SweepRun {
  std::vector<std::string> values;                // of each flag
  std::vector<double> more;                       // see SweepData::more
  const sim::SimulationReport* report = nullptr;  // nullptr: there is none
};

/// Simulations that differ in the values of flags.
struct SweepData {
  std::string title;
  std::vector<std::string> flags;  // without dashes
  std::vector<std::string> more;   // the titles of figures that are not in a report, each a plot of its own
  std::vector<SweepRun> runs;
  sim::Slo slo;
  PlotTable table;  // all figures
  std::vector<std::string> complaints;
  PageFacts settings;
};

/// A page for a browser (see page_frame.h) with a small plot for each figure: over the first flag whose
/// values are all numbers, with a line for each combination of the others; without such a flag bars, a group
/// for each value of the first flag.
std::string sweep_page(const SweepData& sweep);

}  // namespace quire::bench
