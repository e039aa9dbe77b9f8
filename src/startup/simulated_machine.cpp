#include "startup/simulated_machine.h"

#include <utility>

#include <fmt/format.h>

#include "base/amounts.h"
#include "base/error.h"
#include "startup/model_files.h"

namespace quire::startup {

ChosenMachine with_efficiency(ChosenMachine machine, double share) {
  backend::MachineSpeed& speed = machine.speed;
  for (double* const rate : {&speed.bandwidth, &speed.f32, &speed.f16, &speed.bf16, &speed.integer}) {
    *rate *= share;
  }
  return machine;
}

SimulatedMachine simulated_machine(const ModelOutline& model, const NumberFormats& formats,
                                   const ChosenMachine& machine, uint32_t block_size) {
  const Demand demand{.memory = machine.memory,
                      .embeddings_in_file = machine.embeddings_in_file,
                      .context = 1,
                      .max_model_len = model.shape.max_positions,
                      .block_size = block_size};
  Capacity capacity = capacity_of(model, formats, machine.speed, demand);
  if (capacity.blocks == 0) {
    throw Error(fmt::format("--machine: {} has {} of memory, and the weights take {}: no K/V block fits",
                            machine.title, human_bytes(machine.memory), human_bytes(capacity.weight_bytes)));
  }
  SimulatedMachine out{std::move(capacity.roofline), std::move(capacity.shape), capacity.kv_bytes};
  out.cost.model = model_name(model.path);
  out.cost.machine = machine.title;
  return out;
}

}  // namespace quire::startup
