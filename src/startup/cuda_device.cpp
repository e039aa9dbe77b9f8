#include "startup/cuda_device.h"

#include <algorithm>
#include <dlfcn.h>
#include <filesystem>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "backend/cpu/inspect.h"
#include "backend/cuda/entry.h"
#include "base/error.h"
#include "base/log.h"
#include "startup/cuda_memory.h"

namespace quire::startup {
namespace {

namespace cuda = backend::cuda;

constexpr const char* kLibrary = "libquire_cuda.so";
constexpr double kMemoryUtilization = 0.9;

std::vector<std::filesystem::path> places() {
  std::error_code none;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", none).parent_path();
  return {program / kLibrary, program.parent_path() / "lib" / "quire" / kLibrary};
}

/// Loads the library once. Throws Error.
const cuda::Entry& entry() {
  static const cuda::Entry* loaded = nullptr;
  if (loaded != nullptr) return *loaded;
  const std::vector<std::filesystem::path> paths = places();
  const auto found =
      std::ranges::find_if(paths, [](const auto& path) { return std::filesystem::exists(path); });
  if (found == paths.end()) {
    throw Error(
        fmt::format("{} is missing: the backend for NVIDIA GPUs is a library of its own, which `./dev build "
                    "cuda` makes (looked for in {} and {})",
                    kLibrary, paths[0].parent_path().string(), paths[1].parent_path().string()));
  }
  void* library = dlopen(found->c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) throw Error(fmt::format("{} does not load: {}", found->string(), dlerror()));
  auto* function = reinterpret_cast<cuda::EntryFunction*>(dlsym(library, cuda::kEntryName));
  const cuda::Entry* made = function == nullptr ? nullptr : function();
  if (made == nullptr || made->version != cuda::kEntryVersion) {
    throw Error(fmt::format("{} is of another version of quire: `./dev build cuda` makes this one's",
                            found->string()));
  }
  return *(loaded = made);
}

}  // namespace

std::string why_no_cuda(uint32_t device) {
  try {
    return entry().why_not(device);
  } catch (const Error& error) {
    return error.what();
  }
}

std::unique_ptr<backend::Backend> make_cuda(const EngineOptions& options, const model::ModelConfig& config) {
  const DType dtype = cuda_dtype(options, config);
  if (const std::string why = why_no_cuda(options.device_index); !why.empty()) {
    throw Error(
        fmt::format("--device cuda: {}; --device cpu computes on the processors of this machine", why));
  }
  const std::optional<WeightFormat> quantization = pick_quantization(options.model.quantization);
  if (options.fast_gemm && quantization && config.moe.num_experts == 0) {
    throw Error(
        fmt::format("--fast-gemm: changes nothing with --quantization {}, whose products are not cuBLASLt's",
                    options.model.quantization));
  }
  if (options.fast_gemm) {
    log_warning(
        "--fast-gemm: an answer may depend on what else is computed with it: the same request need not give "
        "the same tokens twice");
  }
  return entry().make({.model = options.model.model,
                       .device = options.device_index,
                       .dtype = dtype,
                       .quantization = quantization,
                       .limits = cuda_limits(options, config),
                       .memory_utilization = options.gpu_memory_utilization.value_or(kMemoryUtilization),
                       .fast_gemm = options.fast_gemm,
                       .steps_in_flight = options.cost.steps_in_flight.value_or(2),
                       .threads = num_threads(options.model)},
                      config, backend::cpu::model_shape(config, dtype));
}

}  // namespace quire::startup
