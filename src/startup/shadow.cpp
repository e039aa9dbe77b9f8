#include "startup/shadow.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"
#include "startup/model_files.h"

namespace quire::startup {
namespace {

/// Throws, or warns if it is forced, unless `said` is one of the names that the running one has, the first of
/// which it is called by.
void require_same(std::string_view what, const std::string& said, const std::vector<std::string>& running,
                  const ShadowOptions& options) {
  if (std::ranges::find(running, said) != running.end()) return;
  std::string message =
      fmt::format("--shadow: {} is of another {} than the one that is served: of {}, and this is {}",
                  options.cost_file, what, said, running.front());
  if (!options.force)
    throw Error(message + "; quire calibrate fits one to this, and --force uses it as it is");
  log_warning(message);
}

}  // namespace

std::optional<backend::sim::CostFile> read_shadow_costs(const EngineOptions& options) {
  if (options.shadow.cost_file.empty()) return std::nullopt;
  const uint32_t waiting = options.max_waiting.value_or(options.default_max_waiting);
  if (waiting > engine::Shadow::kMostWaiting) {
    throw Error(fmt::format("--max-waiting: with --shadow at most {} sequences may wait, not {}",
                            engine::Shadow::kMostWaiting, waiting));
  }
  return backend::sim::read_cost_file(options.shadow.cost_file);
}

std::unique_ptr<engine::Shadow> make_shadow(backend::sim::CostFile file, const EngineOptions& options,
                                            const backend::Backend& backend, const std::string& served_name) {
  const bool simulated = options.device->is_simulated;
  std::vector<std::string> models{model_name(options.model.model), served_name};
  // Measured by `quire calibrate` itself, or by a step log.
  std::vector<std::string> machines{fmt::format("{}; {}", backend.describe(), options.shadow.machine),
                                    backend.describe()};
  if (simulated && !options.cost.cost_file.empty()) {
    const backend::sim::CostFile stands_for = backend::sim::read_cost_file(options.cost.cost_file);
    models.insert(models.begin(), stands_for.cost.model);
    machines.insert(machines.begin(), stands_for.cost.machine);
  }
  require_same("model", file.cost.model, models, options.shadow);
  require_same("machine", file.cost.machine, machines, options.shadow);
  return std::make_unique<engine::Shadow>(step_costs(std::move(file.cost), simulated), served_name,
                                          options.shadow.promises);
}

engine::StepCosts step_costs(backend::sim::FittedCost cost, bool simulated) {
  return [cost = std::move(cost), simulated](const backend::StepWork& work) {
    const double device = cost.device_time(work);
    const double host = cost.host_time(work);
    return simulated ? engine::StepCost{device + host, 0} : engine::StepCost{device, host};
  };
}

}  // namespace quire::startup
