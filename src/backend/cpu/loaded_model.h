#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>

#include "backend/cpu/decoder.h"
#include "base/thread_pool.h"
#include "kernels/context.h"
#include "model/config.h"

namespace quire::backend::cpu {

/// A model in memory with everything it needs to compute.
struct LoadedModel {
  /// Loads the weights; see Decoder::load. `threads`: those that compute, at least 1.
  LoadedModel(const std::filesystem::path& model, model::ModelConfig config, const DecoderOptions& options,
              kernels::IsaLevel isa, uint32_t threads);

  ThreadPool pool;
  kernels::KernelContext context;
  std::unique_ptr<Decoder> decoder;
};

}  // namespace quire::backend::cpu
