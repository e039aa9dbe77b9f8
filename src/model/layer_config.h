#pragma once

#include "base/json.h"
#include "model/config.h"
#include "model/families.h"

namespace quire::model {

/// What differs from layer to layer: windows, RoPE and experts. Reads config.json into `out`, whose sizes are
/// known. Throws Error naming the key.
void read_layers(const JsonObject& config, const Family& family, ModelConfig& out);

}  // namespace quire::model
