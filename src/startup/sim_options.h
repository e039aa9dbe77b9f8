#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/sim/cost_file.h"
#include "backend/sim/cost_model.h"
#include "startup/simulated_machine.h"
#include "tokenize/tokenizer.h"

namespace quire::startup {

/// The cost model of a simulated device, and what else it does, in the form of the flags.
struct CostOptions {
  std::string cost_file;                // a fitted cost model; then of the others only steps_in_flight counts
  bool jitter = false;                  // SimTokens::jitter is set
  std::optional<uint64_t> jitter_seed;  // to this; otherwise to the workload's seed, or of a server to 0
  bool force = false;                   // take it although it is of another model, machine or setup
  /// A roofline of the model on this machine; then of the others only efficiency and steps_in_flight count.
  std::optional<ChosenMachine> machine;
  double efficiency = 1;  // of that machine: see with_efficiency
  uint64_t step_us = 1'000;
  uint64_t prefill_tokens_per_ms = 10;
  uint64_t decode_us = 10'000;
  uint64_t decode_more_us = 100;
  uint64_t swap_block_us = 100;
  std::optional<uint32_t> steps_in_flight;  // Executor::depth; by default 1, and 2 of a GPU
  bool check_kv = false;                    // SimTokens::check_kv

  /// Without `machine`, which simulated_machine() is for. Throws Error if it is invalid.
  backend::sim::CostModel model() const;
  /// backend::sim::check_cost_file_for of the cost file; "" if there is none. Throws Error as it does.
  std::string check_for(const backend::sim::CostRun& run) const;
};

/// How a CPU, or a GPU with these formats, would compute the model, as setup_in says of it once the weights
/// are loaded; without threads. Throws Error naming a flag if a format is unknown.
backend::sim::DeviceSetup setup_of(const ModelOutline& model, const NumberFormats& formats);

/// Tokens below `vocab_size` that look like words, if the tokenizer has such tokens, and never special ones.
std::vector<TokenId> sayable_tokens(const tokenize::Tokenizer& tokenizer, uint32_t vocab_size);

}  // namespace quire::startup
