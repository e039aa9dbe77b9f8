#include "backend/cuda/supported.h"

#include <string_view>

#include <fmt/format.h>

#include "backend/cuda/route.h"
#include "base/error.h"

namespace quire::backend::cuda {

void refuse_unsupported(const model::ModelConfig& config, DType dtype) {
  const auto refuse = [&](std::string_view what) {
    throw Error(fmt::format("--device cuda: {} has {}, which only the CPU computes so far (--device cpu)",
                            config.architecture, what));
  };
  if (config.moe.num_experts > kMostExperts) refuse(fmt::format("more than {} experts", kMostExperts));
  // Kernels move 16 bytes at a time.
  const auto check = [&](uint32_t width) {
    if (width * dtype_bytes(dtype) % 16 != 0) {
      refuse(fmt::format("rows of {} numbers, no multiple of 16 bytes in {}", width, dtype_name(dtype)));
    }
  };
  for (const uint32_t width : {config.hidden_size, config.moe.ffn_size, config.head_dim}) check(width);
  for (uint32_t layer = 0; layer < config.num_layers; ++layer) {
    if (!config.has_experts(layer)) check(config.ffn_size);
  }
}

}  // namespace quire::backend::cuda
