#include "backend/cuda/entry.h"

#include <cuda_runtime.h>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/runtime.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kOldestCapability = 80;  // the first with bf16 on tensor cores

std::string why_not(uint32_t device) {
  int count = 0;
  const cudaError_t error = cudaGetDeviceCount(&count);
  if (error == cudaErrorInsufficientDriver || error == cudaErrorStubLibrary) {
    return "NVIDIA's driver is missing, or older than this build needs (a driver for CUDA 13: 580 or newer)";
  }
  if (error == cudaErrorNoDevice || (error == cudaSuccess && count == 0)) {
    return "there is no NVIDIA GPU in this machine, or it is hidden from this process (CUDA_VISIBLE_DEVICES)";
  }
  if (error != cudaSuccess) return fmt::format("CUDA does not start: {}", cudaGetErrorString(error));
  if (device >= static_cast<uint32_t>(count)) {
    return fmt::format("there is no GPU {}: this machine has {}, counted from 0", device, count);
  }
  if (const cudaError_t chosen = cudaSetDevice(static_cast<int>(device)); chosen != cudaSuccess) {
    return fmt::format("GPU {} cannot be used: {}", device, cudaGetErrorString(chosen));
  }
  const DeviceFacts facts = device_facts();
  if (facts.capability < kOldestCapability) {
    return fmt::format("{} has compute capability {}.{}, and quire needs 8.0 (A100 and newer)", facts.name,
                       facts.capability / 10, facts.capability % 10);
  }
  return {};
}

std::unique_ptr<Backend> make(const CudaOptions& options, model::ModelConfig config, ModelShape shape) {
  return std::make_unique<CudaBackend>(options, std::move(config), std::move(shape), lt::load());
}

}  // namespace
}  // namespace quire::backend::cuda

extern "C" __attribute__((visibility("default"))) const quire::backend::cuda::Entry* quire_cuda_entry() {
  static constexpr quire::backend::cuda::Entry kEntry{.why_not = quire::backend::cuda::why_not,
                                                      .make = quire::backend::cuda::make};
  return &kEntry;
}
