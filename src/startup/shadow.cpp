#include "startup/shadow.h"

#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/machine_name.h"
#include "kernels/context.h"
#include "startup/model_files.h"

namespace quire::startup {

std::optional<backend::sim::CostFile> read_shadow_costs(const EngineOptions& options) {
  if (options.shadow.cost_file.empty()) return std::nullopt;
  const uint32_t waiting = options.max_waiting.value_or(options.default_max_waiting);
  if (waiting > engine::Shadow::kMostWaiting) {
    throw Error(fmt::format("--max-waiting: with --shadow at most {} sequences may wait, not {}",
                            engine::Shadow::kMostWaiting, waiting));
  }
  return backend::sim::read_cost_file(options.shadow.cost_file);
}

backend::sim::DeviceSetup setup_before_weights(const EngineOptions& options) {
  if (options.device->is_simulated || options.device->may_be_gpu) return {};
  backend::sim::DeviceSetup setup = setup_of(options);
  setup.kernels = kernels::isa_name(kernels::pick_isa(options.model.isa, "--isa"));
  setup.threads = std::to_string(num_threads(options.model));
  return setup;
}

std::string check_shadow(const backend::sim::CostFile& file, const EngineOptions& options,
                         backend::sim::DeviceSetup setup) {
  backend::sim::CostRun run{
      .model = model_name(options.model.model), .machine = machine_name(), .setup = std::move(setup)};
  if (options.device->is_simulated && !options.cost.cost_file.empty()) {
    const backend::sim::CostFile stands_for = backend::sim::read_cost_file(options.cost.cost_file);
    run = {.model = stands_for.cost.model,
           .machine = stands_for.cost.machine,
           .setup = backend::sim::setup_in(stands_for.device)};
  }
  run.runs_on =
      options.device->is_simulated ? backend::sim::RunsOn::kSimulated : backend::sim::RunsOn::kMachine;
  return check_cost_file_for(run, file, options.shadow.cost_file, options.cost.force);
}

std::unique_ptr<engine::Shadow> make_shadow(backend::sim::CostFile file, const EngineOptions& options,
                                            const std::string& served_name) {
  return std::make_unique<engine::Shadow>(step_costs(std::move(file.cost), options.device->is_simulated),
                                          served_name, options.shadow.promises);
}

engine::StepCosts step_costs(backend::sim::FittedCost cost, bool simulated) {
  return [cost = std::move(cost), simulated](const backend::StepWork& work) {
    const double device = cost.device_time(work);
    const double host = cost.host_time(work);
    const bool beyond = cost.extrapolates(work);
    return simulated ? engine::StepCost{device + host, 0, beyond} : engine::StepCost{device, host, beyond};
  };
}

}  // namespace quire::startup
