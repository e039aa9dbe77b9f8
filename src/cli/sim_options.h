#pragma once

#include <span>
#include <utility>

#include "cli/flags.h"
#include "sim/report.h"
#include "startup/sim_options.h"

namespace quire::cli {

/// The heading of the flags of a simulated device.
inline constexpr const char* kSimGroup =
    "Simulated device (the time of a step is the sum of --cost-..., or as --cost or --machine says)";

void add_cost_options(const Flags& command, startup::CostOptions& options);

/// Throws Error "--cost: FILE ..." if a fitted cost model is of another model than `model`, a name as
/// startup::model_name gives it; with `force` it is taken. Returns whether it is of another one.
bool check_cost_file_for(const std::string& file, const backend::sim::FittedCost& cost,
                         const std::string& model, bool force);

/// Adds and returns --slo, whose text sim::Slo::parse reads.
Flag add_slo_option(const Flags& command, std::string& text);

/// Adds --overlay.
void add_overlay_option(const Flags& command, std::string& file);

/// A table of times, in milliseconds, on standard output.
void print_times(std::span<const std::pair<const char*, sim::Percentiles>> times);

}  // namespace quire::cli
