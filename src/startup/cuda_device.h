#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "model/config.h"
#include "startup/engine_options.h"

namespace quire::startup {

/// The CUDA backend for the options, from libquire_cuda.so, which is looked for beside the program and in
/// ../lib/quire. Throws Error that says in one line what is missing (the library, a driver, a GPU, memory) or
/// which option the backend cannot do, and what would help.
std::unique_ptr<backend::Backend> make_cuda(const EngineOptions& options, const model::ModelConfig& config);

/// Why this machine cannot use it; empty: it can.
std::string why_no_cuda(uint32_t device);

}  // namespace quire::startup
