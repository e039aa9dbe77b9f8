#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cuda_options.h"
#include "model/config.h"

// The way from the program to the CUDA backend. The backend is a shared library beside the program,
// libquire_cuda.so, which is loaded when it is asked for: the program itself needs no CUDA.
namespace quire::backend::cuda {

/// Increased with every change of what passes between the two. Both must be built from the same sources by
/// the same compiler, since C++ objects do.
inline constexpr int kEntryVersion = 4;

struct Entry {
  int version = kEntryVersion;
  /// Why this machine cannot use the device, and what would help; empty: it can.
  std::string (*why_not)(uint32_t device) = nullptr;
  /// As the constructor of CudaBackend. Throws Error.
  std::unique_ptr<Backend> (*make)(const CudaOptions& options, model::ModelConfig config,
                                   ModelShape shape) = nullptr;
};

/// The only name that the library shows: a function of this type.
using EntryFunction = const Entry*();
inline constexpr const char* kEntryName = "quire_cuda_entry";

}  // namespace quire::backend::cuda
