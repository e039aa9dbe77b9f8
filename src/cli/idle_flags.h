#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace quire::startup {
struct EngineOptions;
struct PolicyOptions;
}  // namespace quire::startup

// Refuses flags that change nothing, alone or with the other flags given, because the user expects an effect.
// A limit that is not reached and an explicit default are accepted.
namespace quire::cli {

class Flags;
struct SamplingOptions;
struct WorkloadOptions;

/// If `flag` was given: throws Error "FLAG: changes nothing WHY".
void refuse_if_given(const Flags& command, std::string_view flag, std::string_view why);

/// The differences between requests that policies can use, as far as a command knows them before it runs;
/// nullopt: the requests decide.
struct PolicyField {
  bool prefix_caching = true;
  uint32_t max_num_seqs = 64;
  std::optional<uint32_t> tenants;
  std::optional<uint32_t> priorities;
  std::optional<uint32_t> choices;
  bool one_request = false;
};

/// All functions below throw Error naming a flag of the command that changes nothing.
void refuse_idle_policies(const Flags& command, const startup::PolicyOptions& options,
                          const PolicyField& field);
void refuse_idle_workload_flags(const Flags& command, const WorkloadOptions& options,
                                const startup::PolicyOptions& policies);
/// `swaps`: whether blocks may be moved to the host.
void refuse_idle_costs(const Flags& command, bool swaps, uint32_t max_num_seqs);
void refuse_idle_sampling(const Flags& command, const SamplingOptions& options, bool beam_search);
/// For an engine: the flags of its device and of its policies.
void refuse_idle_engine_flags(const Flags& command, const startup::EngineOptions& options, PolicyField field);

}  // namespace quire::cli
