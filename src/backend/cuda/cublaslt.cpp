#include "backend/cuda/cublaslt.h"

#include <dlfcn.h>
#include <optional>

#include <fmt/format.h>

#include "base/error.h"

namespace quire::backend::cuda::lt {
namespace {

void* open_library(const std::string& folder) {
  std::string tried;
  for (const char* name : {"libcublasLt.so.13", "libcublasLt.so.12"}) {
    const std::string path = folder.empty() ? name : folder + "/" + name;
    if (void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    tried += fmt::format("{}{}", tried.empty() ? "" : "; ", dlerror());
  }
  throw Error(
      fmt::format("cuBLASLt, which multiplies matrices on NVIDIA GPUs, is missing (it is part of the CUDA "
                  "toolkit and of PyTorch): {}",
                  tried));
}

template <class Function>
void find(void* library, const char* name, Function& function) {
  const std::string symbol = fmt::format("cublasLt{}", name);
  function = reinterpret_cast<Function>(dlsym(library, symbol.c_str()));
  if (function == nullptr) throw Error(fmt::format("cuBLASLt has no function {}", symbol));
}

Api functions_of(void* library) {
  Api out{};
#define QUIRE_FIND(name) find(library, #name, out.name)
  QUIRE_FIND(Create);
  QUIRE_FIND(Destroy);
  QUIRE_FIND(GetVersion);
  QUIRE_FIND(GetStatusString);
  QUIRE_FIND(MatrixLayoutCreate);
  QUIRE_FIND(MatrixLayoutDestroy);
  QUIRE_FIND(MatmulDescCreate);
  QUIRE_FIND(MatmulDescDestroy);
  QUIRE_FIND(MatmulDescSetAttribute);
  QUIRE_FIND(MatmulPreferenceCreate);
  QUIRE_FIND(MatmulPreferenceDestroy);
  QUIRE_FIND(MatmulPreferenceSetAttribute);
  QUIRE_FIND(MatmulAlgoGetHeuristic);
  QUIRE_FIND(MatmulAlgoConfigGetAttribute);
  QUIRE_FIND(Matmul);
#undef QUIRE_FIND
  return out;
}

}  // namespace

const Api& load(const std::string& folder) {
  static std::optional<Api> loaded;
  if (!loaded) loaded = functions_of(open_library(folder));
  return *loaded;
}

}  // namespace quire::backend::cuda::lt
