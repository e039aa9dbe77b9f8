#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "model/families.h"

namespace quire::model {

/// The keys of config.json that affect the results and that every family reads.
std::span<const std::string_view> keys_of_all_families();

/// Throws Error with the key for a value that requests a feature that no family supports, and logs one
/// warning with the keys of `config` that the family does not know. Null counts as absent. False does not: it
/// may switch off a feature that the family assumes, and is accepted silently only for keys that are known to
/// name an optional feature.
void check_keys(const JsonObject& config, const Family& family);

}  // namespace quire::model
