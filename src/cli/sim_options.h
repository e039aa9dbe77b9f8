#pragma once

#include <span>
#include <utility>

#include "sim/report.h"
#include "startup/sim_options.h"

namespace CLI {
class App;
}

namespace quire::cli {

void add_cost_options(CLI::App& command, startup::CostOptions& options);

/// A table of times, in milliseconds, on standard output.
void print_times(std::span<const std::pair<const char*, sim::Percentiles>> times);

}  // namespace quire::cli
