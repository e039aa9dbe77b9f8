#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "model/families.h"

namespace quire {

/// Keys of config.json that change the numbers and that every family reads.
std::span<const std::string_view> keys_of_all_families();

/// Refuses (Error with the key) what asks for something that no family does, and logs one warning with the
/// keys of `config` that the family does not know. Null and false say that something is not there and are
/// known everywhere.
void check_keys(const JsonObject& config, const Family& family);

}  // namespace quire
