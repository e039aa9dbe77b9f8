#pragma once

#include <boost/json/object.hpp>

#include "base/json.h"
#include "control/scheduler.h"

namespace quire::record {

boost::json::object to_json(const control::SchedulerConfig& config);
/// Throws Error naming the key.
control::SchedulerConfig scheduler_config_from(const JsonObject& object);

}  // namespace quire::record
