#pragma once

#include <string>

#include "startup/engine_options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace quire::cli {

void add_model_options(CLI::App& command, startup::ModelOptions& options);

/// Adds --kv-cache-dtype.
CLI::Option* add_kv_dtype_option(CLI::App& command, std::string& name);

void add_engine_options(CLI::App& command, startup::EngineOptions& options);

/// The engine options that matter for one sequence at a time.
void add_single_engine_options(CLI::App& command, startup::EngineOptions& options);

/// --device and the flags of a simulated device.
void add_device_options(CLI::App& command, startup::EngineOptions& options);

}  // namespace quire::cli
