#pragma once

#include "base/json.h"
#include "model/config.h"
#include "model/families.h"

namespace quire::model {

/// Reads the RoPE part of config.json into rope and local_rope of `out`, whose sizes are set already:
/// "rope_parameters", by layer type if the family has two, or "rope_theta" with "rope_scaling". Throws Error
/// naming the key of an unsupported value.
void read_rope_config(const JsonObject& config, const Family& family, ModelConfig& out);

}  // namespace quire::model
