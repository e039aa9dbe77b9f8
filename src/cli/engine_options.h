#pragma once

#include <string>

#include "cli/flags.h"
#include "startup/engine_options.h"

namespace quire::cli {

/// The heading in the help text of the engine's memory and batching.
inline constexpr const char* kMemoryGroup = "Memory and batching";

void add_model_options(const Flags& command, startup::ModelOptions& options);

/// Adds --dtype.
Flag add_dtype_option(const Flags& command, std::string& name);

/// Adds --kv-cache-dtype.
Flag add_kv_dtype_option(const Flags& command, std::string& name);

void add_engine_options(const Flags& command, startup::EngineOptions& options);

/// Adds --decision-log-max, for a command that has --decision-log.
Flag add_log_limit_option(const Flags& command, std::string& limit);

/// The engine options that matter for one sequence at a time.
void add_single_engine_options(const Flags& command, startup::EngineOptions& options);

/// --device and the flags of a simulated device.
void add_device_options(const Flags& command, startup::EngineOptions& options);

}  // namespace quire::cli
