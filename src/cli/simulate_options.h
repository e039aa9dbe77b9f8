#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "cli/workload_options.h"
#include "sim/simulation.h"
#include "startup/policy_options.h"
#include "startup/sim_options.h"

namespace quire::cli {

class Flags;

/// What one simulation is of, in the form of the flags; an empty field gets the default of the demo or of an
/// ordinary run.
struct SimulateOptions {
  bool demo = false;
  std::optional<uint32_t> num_blocks;
  std::optional<uint32_t> block_size;
  std::optional<uint32_t> max_num_seqs;
  std::optional<uint32_t> max_num_batched_tokens;
  std::optional<uint32_t> max_model_len;
  std::optional<uint32_t> max_waiting;
  uint32_t sliding_window = 0;
  bool enable_prefix_caching = true;

  WorkloadOptions workload;
  startup::PolicyOptions policies;
  startup::CostOptions cost;
  uint64_t latency_us = 0;
  uint64_t accept_us = 0;
  std::string model;           // that the machine runs, or whose times those of --cost must be; may be empty
  std::string dtype = "auto";  // that it is computed in
  startup::NumberFormats formats;
};
void add_simulation_flags(const Flags& command, SimulateOptions& options);

/// Throws Error naming a flag that makes no sense with the others. `idle`: also one that changes nothing.
void settle_simulation(const SimulateOptions& options, const Flags& command, bool idle = true);

/// Throws Error naming a flag, or the cost file.
sim::SimulationConfig simulation_config(const SimulateOptions& options);

/// The requests, of which there is at least one. Throws Error naming the flag or the line of a trace. It says
/// nothing; the notes of its settings are for the user.
std::unique_ptr<sim::RequestStream> simulation_requests(const SimulateOptions& options);

}  // namespace quire::cli
