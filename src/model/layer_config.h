#pragma once

#include "base/json.h"
#include "model/config.h"
#include "model/families.h"

namespace quire::model {

/// Reads the settings per layer (windows, RoPE and experts) from config.json into `out`, whose sizes are set
/// already. Throws Error naming the key.
void read_layers(const JsonObject& config, const Family& family, ModelConfig& out);

}  // namespace quire::model
