#pragma once

#include <string_view>

#include <boost/json/object.hpp>

#include "cli/plan_load.h"
#include "startup/capacity_plan.h"
#include "startup/model_outline.h"
#include "startup/simulated_machine.h"

namespace quire::cli {

/// The figures of a plan, in bytes, operations and seconds; what is not known is null. `kv_type`: "f16".
boost::json::object plan_json(const startup::CapacityPlan& plan, const startup::ModelOutline& model,
                              const startup::ChosenMachine& machine, const startup::Demand& demand,
                              std::string_view kv_type, const Foresight& foresight);

}  // namespace quire::cli
