#pragma once

#include <span>
#include <utility>

#include "sim/report.h"
#include "startup/sim_options.h"

namespace quire::cli {

class Flag;
class Flags;

/// The heading of the flags of a simulated device.
inline constexpr const char* kSimGroup =
    "Simulated device (the time of a step is the sum of --cost-..., or as --cost or --machine says)";

/// Returns --machine.
Flag add_cost_options(const Flags& command, startup::CostOptions& options);

/// Adds --slo, whose text sim::Slo::parse reads.
void add_slo_option(const Flags& command, std::string& text);

/// A table of times, in milliseconds, on standard output.
void print_times(std::span<const std::pair<const char*, sim::Percentiles>> times);

}  // namespace quire::cli
