#include "startup/model_options.h"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/error.h"
#include "base/log.h"
#include "base/machine_limits.h"
#include "formats/model_config.h"
#include "kernels/attention.h"
#include "startup/model_files.h"

namespace quire::startup {
namespace {

void warn_of_threads(uint32_t given) {
  const CpuLimit usable = usable_cpus();
  if (given <= usable.threads) return;
  log_warning(fmt::format("--threads: {} threads share {} CPUs ({}): they wait for each other", given,
                          usable.threads, usable.source));
}

}  // namespace

std::optional<DType> pick_dtype(const std::string& name) {
  if (name == "auto") return std::nullopt;
  const auto dtype = parse_dtype(name);
  if (dtype && is_float(*dtype)) return dtype;
  throw Error(fmt::format("--dtype: '{}' is not one of auto, f32, f16, bf16", name));
}

std::optional<DType> pick_kv_dtype(const std::string& name, uint32_t head_dim) {
  if (name == "auto") return std::nullopt;
  const auto dtype = parse_dtype(name);
  if (!dtype || (!is_float(*dtype) && *dtype != DType::kI8)) {
    throw Error(fmt::format("--kv-cache-dtype: '{}' is not one of auto, f32, f16, bf16, int8", name));
  }
  if (!kernels::KvLayout::fits(*dtype, head_dim)) {
    throw Error(fmt::format(
        "--kv-cache-dtype: {} is for heads of a multiple of 4 elements; those of the model have {}", name,
        head_dim));
  }
  return dtype;
}

std::optional<WeightFormat> pick_quantization(const std::string& name) {
  if (name == "auto" || name == "none") return std::nullopt;
  for (const WeightFormat format : {WeightFormat::kInt8, WeightFormat::kInt4}) {
    if (name == weight_format_name(format)) return format;
  }
  throw Error(fmt::format("--quantization: '{}' is not one of auto, none, int8, int4", name));
}

uint32_t num_threads(const ModelOptions& options) {
  return options.threads > 0 ? options.threads : usable_cpus().threads;
}

formats::FileAccess file_access(const ModelOptions& options) {
  return options.no_mmap ? formats::FileAccess::kRead : formats::FileAccess::kMap;
}

model::ModelConfig config_of(const ModelOptions& options) {
  model::ModelConfig config = formats::load_model_config(checked_model(options.model));
  model::limit_windows(config, options.sliding_window);
  return config;
}

std::unique_ptr<backend::cpu::LoadedModel> load_model(const ModelOptions& options, model::ModelConfig config,
                                                      uint32_t longest) {
  warn_of_threads(options.threads);
  const uint32_t threads = num_threads(options);
  const kernels::IsaLevel isa = kernels::pick_isa(options.isa, "--isa");
  const backend::cpu::DecoderOptions decoder = {.compute = pick_dtype(options.dtype),
                                                .quantization = pick_quantization(options.quantization),
                                                .own_blocks = options.quantization == "auto",
                                                .max_positions = longest,
                                                .pack_cache = options.pack_cache,
                                                .access = file_access(options)};
  return std::make_unique<backend::cpu::LoadedModel>(options.model, std::move(config), decoder, isa, threads);
}

}  // namespace quire::startup
