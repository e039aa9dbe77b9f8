#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/sim/cost_file.h"
#include "engine/shadow.h"
#include "startup/engine_options.h"

// From the options of a shadow to what predicts the engine.
namespace quire::startup {

/// The file of ShadowOptions; nullopt: there is no shadow. Throws Error naming the file and the key at fault,
/// or a flag that does not go with it.
std::optional<backend::sim::CostFile> read_shadow_costs(const EngineOptions& options);

/// The setup that a device will have, as far as it is known before the weights are loaded: a CPU's.
backend::sim::DeviceSetup setup_before_weights(const EngineOptions& options);

/// backend::sim::check_cost_file_for of that file, and a device with that setup. A simulated device stands
/// for the model, the machine and the setup of its own cost file. Throws Error as it does.
std::string check_shadow(const backend::sim::CostFile& file, const EngineOptions& options,
                         backend::sim::DeviceSetup setup);

std::unique_ptr<engine::Shadow> make_shadow(backend::sim::CostFile file, const EngineOptions& options,
                                            const std::string& served_name);

/// What a shadow predicts by such a model. `simulated`: of a simulated device, whose phases take the time of
/// whole steps.
engine::StepCosts step_costs(backend::sim::FittedCost cost, bool simulated);

}  // namespace quire::startup
