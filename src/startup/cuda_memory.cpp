#include "startup/cuda_memory.h"

#include <algorithm>
#include <optional>

#include <fmt/format.h>

#include "backend/cpu/inspect.h"
#include "backend/cuda/activations.h"
#include "backend/cuda/sampler_memory.h"
#include "backend/cuda/supported.h"
#include "base/error.h"

namespace quire::startup {
namespace {

namespace cuda = backend::cuda;

constexpr uint32_t kLeastLogitRows = 64;  // what a step yields of a prompt at once

}  // namespace

DType cuda_dtype(const EngineOptions& options, const model::ModelConfig& config) {
  const DType dtype = pick_dtype(options.model.dtype).value_or(config.dtype);
  const std::optional<WeightFormat> quantization = pick_quantization(options.model.quantization);
  if (quantization && dtype == DType::kF32) {
    throw Error(
        fmt::format("--quantization: --device cuda multiplies {} weights with bf16 or f16, not with f32 "
                    "(--dtype bf16)",
                    options.model.quantization));
  }
  if (pick_kv_dtype(options.kv_cache_dtype, config.head_dim).value_or(dtype) != dtype) {
    throw Error(fmt::format("--kv-cache-dtype: --device cuda keeps K/V in the type of activations, {}",
                            dtype_name(dtype)));
  }
  return dtype;
}

cuda::StepLimits cuda_limits(const EngineOptions& options, const model::ModelConfig& config) {
  return {.rows = given_budget(options).value_or(auto_step_tokens(kMaxAutoBudget, options.max_num_seqs)),
          .seqs = options.max_num_seqs,
          .positions = options.max_model_len > 0 ? std::min(options.max_model_len, config.max_positions)
                                                 : config.max_positions,
          .logit_rows = std::max(kLeastLogitRows, options.max_num_seqs)};
}

CudaMemory cuda_memory(const EngineOptions& options, const model::ModelConfig& config) {
  CudaMemory out;
  out.dtype = cuda_dtype(options, config);
  cuda::refuse_unsupported(config, out.dtype);
  out.limits = cuda_limits(options, config);
  out.quantization = pick_quantization(options.model.quantization);
  out.weight_bytes = cuda::weight_bytes(config, out.dtype, out.quantization);
  out.kv_bytes_per_token = backend::cpu::model_shape(config, out.dtype).kv_bytes_per_token();
  out.workspace_bytes = cuda::kGemmWorkspace;
  out.sampling_bytes = cuda::sampling_bytes(out.limits.seqs, config.max_positions, config.vocab_size);
  const cuda::Activations all = cuda::lay_out_activations(config, out.dtype, options.block_size, out.limits);
  out.activation_bytes = all.bytes;
  out.unshared_bytes = cuda::unshared_bytes(all.buffers);
  for (const cuda::ArenaBuffer& buffer : all.buffers) {
    if (buffer.bytes == 0) continue;
    out.buffers.push_back(
        {std::string(buffer.name), buffer.bytes, buffer.offset, cuda::describe(buffer.lives)});
  }
  std::ranges::stable_sort(out.buffers, {}, &CudaBuffer::offset);
  return out;
}

}  // namespace quire::startup
