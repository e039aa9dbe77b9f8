#include "backend/cpu/decoder.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/cpu_ops.h"
#include "backend/cpu/inspect.h"
#include "backend/cpu/weights.h"
#include "base/error.h"
#include "decoder/forward_pass.h"
#include "formats/model_config.h"

namespace quire::backend::cpu {

struct Decoder::Impl {
  Impl(model::ModelConfig of, DType dtype, ModelWeights loaded, uint32_t max_positions)
      : config(std::move(of)),
        compute(dtype),
        weights(std::move(loaded)),
        pass(config, compute,
             max_positions == 0 ? config.max_positions : std::min(max_positions, config.max_positions)),
        ops(config, weights) {}

  const model::ModelConfig config;
  const DType compute;
  const ModelWeights weights;
  decoder::ForwardPass pass;
  CpuOps ops;
};

Decoder::Decoder(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Decoder::~Decoder() = default;

std::unique_ptr<Decoder> Decoder::load(const std::filesystem::path& model, const DecoderOptions& options,
                                       kernels::KernelContext& context) {
  return load(model, formats::load_model_config(model), options, context);
}

std::unique_ptr<Decoder> Decoder::load(const std::filesystem::path& model, model::ModelConfig config,
                                       const DecoderOptions& options, kernels::KernelContext& context) {
  const DType dtype = options.compute.value_or(config.dtype);
  if (!is_float(dtype)) throw Error(fmt::format("compute type {} is not supported", dtype_name(dtype)));
  const WeightSetting setting = {.compute = dtype,
                                 .format = options.quantization.value_or(weight_format_of(dtype)),
                                 .own_blocks = options.own_blocks && !options.quantization};
  ModelWeights weights = load_weights(model, config, setting, context, options.pack_cache, options.access);
  return std::unique_ptr<Decoder>(new Decoder(
      std::make_unique<Impl>(std::move(config), dtype, std::move(weights), options.max_positions)));
}

const model::ModelConfig& Decoder::config() const { return impl_->config; }
ModelShape Decoder::shape() const { return model_shape(impl_->config, impl_->compute); }
uint64_t Decoder::mapped_weight_bytes() const {
  const auto& kept = impl_->weights.kept;
  return kept == nullptr ? 0 : kept->mapped_bytes();
}

DType Decoder::compute_dtype() const { return impl_->compute; }
std::string Decoder::weight_formats() const { return formats_in_use(impl_->weights); }

void Decoder::reserve(kernels::KernelContext& context, size_t tokens, size_t logit_rows) {
  impl_->ops.use_context(context);
  impl_->ops.reserve(tokens, logit_rows);
}

void Decoder::compute(kernels::KernelContext& context, KvCache& cache, std::span<const TokenId> tokens,
                      std::span<const decoder::BatchSeq> seqs) {
  impl_->ops.use_context(context);
  impl_->ops.use_cache(cache);
  impl_->pass.compute(impl_->ops, {cache.groups(), cache.num_blocks(), cache.block_size()}, tokens, seqs);
}

std::span<const float> Decoder::logits(kernels::KernelContext& context, std::span<const uint32_t> rows) {
  impl_->ops.use_context(context);
  return impl_->pass.logits(impl_->ops, rows);
}

std::span<const float> Decoder::hidden(kernels::KernelContext& context, std::span<const uint32_t> rows) {
  impl_->ops.use_context(context);
  return impl_->pass.hidden(impl_->ops, rows);
}

std::span<const float> Decoder::forward(kernels::KernelContext& context, KvCache& cache,
                                        std::span<const TokenId> tokens,
                                        std::span<const decoder::BatchSeq> seqs) {
  compute(context, cache, tokens, seqs);
  return logits(context, impl_->pass.logit_rows());
}

}  // namespace quire::backend::cpu
