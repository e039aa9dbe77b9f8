#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cli/run_columns.h"
#include "cli/simulate_options.h"
#include "cli/what_if.h"
#include "sim/slo.h"

// The runs of a sweep or a search, each from its own command line.
namespace quire::cli {

using Combination = std::vector<std::string>;  // a value of each axis

/// The arguments that make a run one of this combination.
std::vector<std::string> arguments_of(const WhatIf& asked, const Combination& values);

/// The options of one run: `more` follows the arguments of all. Throws Error naming a flag; `idle`: also one
/// that changes nothing.
SimulateOptions parse_run(const WhatIf& asked, const std::vector<std::string>& more, bool idle);

/// The options of each combination. A flag may change nothing in some of them, but not in all.
std::vector<SimulateOptions> parse_all(const WhatIf& asked, const std::vector<Combination>& all);

/// For each of the runs why it can finish no request, as all are too long: "the shortest has 220 tokens, and
/// there is room for 161"; "" if one may finish. A trace is read once.
std::vector<std::string> why_none_fits(std::span<const SimulateOptions> options);

/// nullopt after an interrupt.
std::optional<RunResult> simulate_run(const SimulateOptions& options, const sim::Slo& slo);

/// Calls work(i) for each i below `count` on all CPUs. After an exception or an interrupt no further one
/// begins; the first exception is thrown.
void for_all(size_t count, const std::function<void(size_t)>& work);

}  // namespace quire::cli
