#pragma once

#include "startup/policy_options.h"

namespace quire::cli {

class Flags;

void add_policy_options(const Flags& command, startup::PolicyOptions& options);

}  // namespace quire::cli
