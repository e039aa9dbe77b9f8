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
        return fmt::format("'{}' is not one of {}", name, fmt::join(names, ", "));
      })
      .show_default(std::string(names[static_cast<size_t>(value)]))
      .group(kGroup)
      .value_name("NAME");
}

}  // namespace

void add_policy_options(const Flags& command, startup::PolicyOptions& options) {
  add_choice(command, "--scheduling-policy", options.scheduling, control::kSchedulingNames,
             "Which sequence is admitted first");
  add_choice(command, "--batching", options.batching, control::kBatchingNames, "When sequences are admitted");
  add_choice(command, "--victim-policy", options.victim, control::kVictimNames,
             "Which sequence is preempted when no block is available");
  add_choice(command, "--eviction-policy", options.eviction, control::kEvictionNames,
             "Which cached blocks are evicted first");
  add_choice(command, "--preemption-mode", options.preemption, control::kPreemptionNames,
             "What happens to a preempted sequence's K/V");
  command
      .add_option("--swap-space", options.swap_space,
                  "Host memory for swapped-out K/V; a number without a unit is in GiB (default 1GiB)")
      .group(kGroup)
      .value_name("SIZE");
  command
      .add_option("--priority-aging", options.priority_aging,
                  "Seconds of waiting that raise the priority by one level (default 5)")
      .number_range(0.001, 9000.0)
      .group(kGroup)
      .value_name("S");

  command
      .add_option(
          "--watermark", options.watermark,
          "Percentage of the blocks that an admission leaves available, so that running sequences can grow")
      .show_default()
      .number_range(0.0, 100.0)
      .group(kGroup)
      .value_name("P");
  command
      .add_flag("--admit-eagerly", options.admit_eagerly,
                "Admit a sequence as soon as one block is available for it (thrashes; for comparison)")
      .group(kGroup);
  command
      .add_flag("--admit-while-preempting", options.admit_while_preempting,
                "Admit sequences even in a step that preempts (thrashes; for comparison)")
      .group(kGroup);
}

}  // namespace quire::cli
