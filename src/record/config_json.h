#pragma once

#include <boost/json/object.hpp>

#include "base/json.h"
#include "control/scheduler.h"

namespace quire {

boost::json::object to_json(const SchedulerConfig& config);
/// Throws Error naming the key.
SchedulerConfig scheduler_config_from(const JsonObject& object);

}  // namespace quire
