#pragma once

#include <cstdint>
#include <string>

#include "backend/machine.h"
#include "backend/model_shape.h"
#include "backend/sim/roofline_cost.h"
#include "startup/capacity.h"
#include "startup/model_outline.h"

// A simulated device that takes the place of a machine with a model in its memory.
namespace quire::startup {

/// A machine, as a command line chooses it.
struct ChosenMachine {
  std::string name;  // of --machine; "given": flags alone say how fast it is
  std::string title;
  std::string source;  // of its figures
  uint64_t memory = 0;
  std::string memory_source;       // ", what is free here"; empty: given
  bool embeddings_in_file = true;  // see Demand
  backend::MachineSpeed speed;
};

/// The machine of which only a share of the bandwidth and of the rates is reached, from 0 to 1.
ChosenMachine with_efficiency(ChosenMachine machine, double share);

struct SimulatedMachine {
  backend::sim::RooflineCost cost;
  backend::ModelShape shape;  // with the K/V in its type on the machine
  uint64_t kv_bytes = 0;      // memory beside the weights
};

/// Throws Error "--machine: ..." if the memory does not hold the weights and one block, and Error naming a
/// flag if a format is unknown.
SimulatedMachine simulated_machine(const ModelOutline& model, const NumberFormats& formats,
                                   const ChosenMachine& machine, uint32_t block_size);

}  // namespace quire::startup
