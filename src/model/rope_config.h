#pragma once

#include "base/json.h"
#include "model/config.h"
#include "model/families.h"

namespace quire::model {

/// RoPE's part of config.json: "rope_parameters", by layer type where the family has two, or "rope_theta"
/// with "rope_scaling". Reads it into rope and local_rope of `out`, whose sizes are known. Throws Error
/// naming the key for what cannot be honoured.
void read_rope_config(const JsonObject& config, const Family& family, ModelConfig& out);

}  // namespace quire::model
