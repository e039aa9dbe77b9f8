#pragma once

#include "startup/policy_options.h"

namespace CLI {
class App;
}

namespace quire::cli {

void add_policy_options(CLI::App& command, startup::PolicyOptions& options);

}  // namespace quire::cli
