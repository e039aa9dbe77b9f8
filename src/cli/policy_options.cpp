#include "cli/policy_options.h"

#include <algorithm>
#include <span>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "cli/flags.h"

namespace quire::cli {
namespace {

constexpr const char* kGroup = "Policies";

/// A flag whose values are `names`, in the order of Kind's enumerators.
template <typename Kind>
void add_choice(const Flags& command, const char* flag, Kind& value, std::span<const std::string_view> names,
                const char* help) {
  const auto set = [&value, names](const std::string& name) {
    value = static_cast<Kind>(std::ranges::find(names, name) - names.begin());
  };
  command.add_option_function(flag, set, fmt::format("{}: {}", help, fmt::join(names, ", ")))
      .check([names](const std::string& name) {
        if (std::ranges::find(names, name) != names.end()) return std::string();
        return fmt::format("'{}' is none of {}", name, fmt::join(names, ", "));
      })
      .show_default(std::string(names[static_cast<size_t>(value)]))
      .group(kGroup)
      .value_name("NAME");
}

}  // namespace

void add_policy_options(const Flags& command, startup::PolicyOptions& options) {
  add_choice(command, "--scheduling-policy", options.scheduling, control::kSchedulingNames,
             "Who comes in first");
  add_choice(command, "--batching", options.batching, control::kBatchingNames, "When sequences come in");
  add_choice(command, "--victim-policy", options.victim, control::kVictimNames,
             "Who gives way when there are no blocks left");
  add_choice(command, "--eviction-policy", options.eviction, control::kEvictionNames,
             "Which cached blocks are forgotten first");
  add_choice(command, "--preemption-mode", options.preemption, control::kPreemptionNames,
             "What becomes of the victim's K/V");
  command
      .add_option("--swap-space", options.swap_space,
                  "Memory for K/V that is swapped out; a bare number: GiB (default 1GiB)")
      .group(kGroup)
      .value_name("SIZE");
  command
      .add_option("--priority-aging", options.priority_aging,
                  "Seconds of waiting that count as much as one level of priority (default 5)")
      .number_range(0.001, 9000.0)
      .group(kGroup)
      .value_name("S");

  command
      .add_option("--watermark", options.watermark,
                  "Percent of the blocks that stay free when a sequence comes in, for those that grow")
      .show_default()
      .number_range(0.0, 100.0)
      .group(kGroup)
      .value_name("P");
  command
      .add_flag("--admit-eagerly", options.admit_eagerly,
                "Let a sequence come in as soon as there is a block for it (thrashes; to compare with)")
      .group(kGroup);
  command
      .add_flag("--admit-while-preempting", options.admit_while_preempting,
                "Let sequences come in even in a step that preempts (thrashes; to compare with)")
      .group(kGroup);
}

}  // namespace quire::cli
