#pragma once

#include "base/json.h"
#include "model/config.h"

namespace quire {

/// RoPE's part of config.json: "rope_parameters", or "rope_theta" with "rope_scaling". Throws Error naming
/// the key for what cannot be honoured.
RopeConfig read_rope_config(const JsonObject& config, uint32_t max_positions);

}  // namespace quire
