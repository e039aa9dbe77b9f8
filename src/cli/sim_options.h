#pragma once

#include <span>
#include <string>
#include <utility>

#include "cli/flags.h"
#include "sim/report.h"
#include "startup/sim_options.h"

namespace quire::cli {

/// The heading of the flags of a simulated device.
inline constexpr const char* kSimGroup =
    "Simulated device (the time of a step is the sum of --cost-..., or as --cost or --machine says)";

void add_cost_options(const Flags& command, startup::CostOptions& options);

/// Whose times a fitted cost model has: "MODEL on MACHINE", and its warning, without control characters; ""
/// of other cost models.
std::string cost_source(const backend::sim::CostModel& cost);

/// Adds and returns --slo, whose text sim::Slo::parse reads.
Flag add_slo_option(const Flags& command, std::string& text);

/// Adds --overlay.
void add_overlay_option(const Flags& command, std::string& file);

/// A table of times, in milliseconds, on standard output; "-" where there are none.
void print_times(std::span<const std::pair<const char*, sim::Percentiles>> times);

}  // namespace quire::cli
