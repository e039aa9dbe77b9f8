#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "backend/cuda/entry.h"
#include "model/config.h"
#include "startup/engine_options.h"

// What a model takes of an NVIDIA GPU's memory, by arithmetic: there need not be a GPU, nor the library that
// computes on it.
namespace quire::startup {

/// The number format on the device of all but matrices that are quantized. Throws Error naming an option that
/// asks for another.
DType cuda_dtype(const EngineOptions& options, const model::ModelConfig& config);

/// The largest step that these options allow.
backend::cuda::StepLimits cuda_limits(const EngineOptions& options, const model::ModelConfig& config);

struct CudaBuffer {
  std::string name;
  uint64_t bytes = 0;
  uint64_t offset = 0;
  std::string lives;  // from which operation of a forward pass to which
};

struct CudaMemory {
  DType dtype = DType::kBF16;
  std::optional<WeightFormat> quantization;  // of the matrices of layers and head: int8 or int4
  backend::cuda::StepLimits limits;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes_per_token = 0;
  uint64_t workspace_bytes = 0;  // of matrix products
  uint64_t sampling_bytes = 0;   // 0: the host samples
  uint64_t activation_bytes = 0;
  uint64_t unshared_bytes = 0;      // of activations, if each buffer had its own place
  std::vector<CudaBuffer> buffers;  // of activations that have bytes, by their offset

  /// All of it but K/V: what an engine holds from its start to its end.
  uint64_t peak_bytes() const { return weight_bytes + workspace_bytes + sampling_bytes + activation_bytes; }
};

/// Throws Error as cuda_dtype() does, or if the device does not compute the model.
CudaMemory cuda_memory(const EngineOptions& options, const model::ModelConfig& config);

}  // namespace quire::startup
