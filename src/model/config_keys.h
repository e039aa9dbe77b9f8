#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "model/families.h"

namespace quire::model {

/// Keys of config.json that change the numbers and that every family reads.
std::span<const std::string_view> keys_of_all_families();

/// Refuses (Error with the key) what asks for something that no family does, and logs one warning with the
/// keys of `config` that the family does not know. Null is absence. False is not: it may switch off what the
/// family takes for granted, and passes silently only under keys known to name what may be there.
void check_keys(const JsonObject& config, const Family& family);

}  // namespace quire::model
