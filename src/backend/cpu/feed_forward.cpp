#include "backend/cpu/feed_forward.h"

#include <algorithm>

#include "kernels/matmul.h"
#include "kernels/moe.h"

namespace quire::backend::cpu {
namespace {

/// Rows that go through one feed-forward together. What lies between its matmuls stays in the cache, but
/// tiles multiply so fast that reading the weights for few rows takes longer.
size_t most_rows(const kernels::KernelContext& context) {
  return context.isa == kernels::IsaLevel::kAmx ? 512 : 192;
}

float* floats(Buffer& buffer, size_t count) {
  buffer.reserve(count * sizeof(float));
  return buffer.as<float>();
}

std::span<const FeedForward> feed_forwards(const LayerWeights& layer) {
  if (layer.experts.empty()) return {&layer.ffn, 1};
  return layer.experts;
}

}  // namespace

void FeedForwardPass::run(kernels::KernelContext& context, const model::ModelConfig& config,
                          const LayerWeights& layer, const float* x, size_t rows, float* out) {
  if (layer.experts.empty()) {
    gated(context, config, layer.ffn, x, rows, out);
  } else {
    experts(context, config, layer, x, rows, out);
  }
}

void FeedForwardPass::gated(kernels::KernelContext& context, const model::ModelConfig& config,
                            const FeedForward& weights, const float* x, size_t rows, float* out) {
  const size_t hidden = config.hidden_size;
  const size_t width = weights.down.k();
  const size_t most = std::min(rows, most_rows(context));
  float* gate_up = floats(gate_up_, most * 2 * width);
  const bool gelu = config.activation == model::Activation::kGeluTanh;
  const kernels::Gate gate = gelu ? kernels::Gate::kGeluTanh : kernels::Gate::kSilu;
  const size_t blocks = (rows + most_rows(context) - 1) / most_rows(context);
  for (size_t block = 0; block < blocks; ++block) {  // of nearly the same height
    const size_t first = block * rows / blocks;
    const size_t count = (block + 1) * rows / blocks - first;
    matmul(context, weights.gate_up, x + first * hidden, hidden, count, gate_up, 2 * width);
    matmul_gated(context, weights.down, gate, gate_up, count, out + first * hidden, hidden);
  }
}

void FeedForwardPass::reserve(kernels::KernelContext& context, const model::ModelConfig& config,
                              std::span<const LayerWeights> layers, size_t rows) {
  const model::MoeConfig& moe = config.moe;
  for (const LayerWeights& layer : layers) {
    const size_t most = std::min(rows, most_rows(context));
    for (const FeedForward& ffn : feed_forwards(layer)) {
      floats(gate_up_, most * 2 * ffn.down.k());
    }
    if (layer.experts.empty()) continue;
    floats(routed_, rows * moe.num_experts);
    floats(weights_, rows * moe.top);
    floats(gathered_, rows * moe.top * config.hidden_size);
    floats(computed_, rows * moe.top * config.hidden_size);
  }
  for (Buffer* buffer : {&gate_up_, &routed_, &weights_, &gathered_, &computed_}) {
    touch(context.pool, buffer->bytes());
  }
}

size_t FeedForwardPass::scratch_bytes(const kernels::KernelContext& context, const LayerWeights& layer,
                                      size_t rows) {
  size_t bytes = kernels::matmul_scratch_bytes(context, layer.router, rows);
  const size_t most = std::min(rows, most_rows(context));
  for (const FeedForward& ffn : feed_forwards(layer)) {
    bytes = std::max({bytes, matmul_scratch_bytes(context, ffn.gate_up, most),
                      matmul_scratch_bytes(context, ffn.down, most)});
  }
  return bytes;
}

/// A counting sort of chosen_, stable, so that each expert gets its rows in ascending order.
void FeedForwardPass::sort_by_expert(size_t rows, const model::MoeConfig& moe) {
  const size_t count = rows * moe.top;
  starts_.assign(size_t{moe.num_experts} + 1, 0);
  for (size_t i = 0; i < count; ++i) ++starts_[chosen_[i] + 1];
  for (size_t expert = 0; expert < moe.num_experts; ++expert) starts_[expert + 1] += starts_[expert];
  places_.resize(count);
  sources_.resize(count);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t place = starts_[chosen_[i]]++;
    places_[i] = place;
    sources_[place] = static_cast<uint32_t>(i / moe.top);
  }
  // Each start has moved to the next one's.
  for (size_t expert = moe.num_experts; expert > 0; --expert) starts_[expert] = starts_[expert - 1];
  starts_[0] = 0;
}

void FeedForwardPass::experts(kernels::KernelContext& context, const model::ModelConfig& config,
                              const LayerWeights& layer, const float* x, size_t rows, float* out) {
  const size_t hidden = config.hidden_size;
  const model::MoeConfig& moe = config.moe;
  float* logits = floats(routed_, rows * moe.num_experts);
  float* weights = floats(weights_, rows * moe.top);
  chosen_.resize(rows * moe.top);
  kernels::matmul(context, layer.router, x, hidden, rows, logits, moe.num_experts);
  kernels::route(context, logits, rows, moe.num_experts, moe.top, moe.normalize, chosen_.data(), weights);
  sort_by_expert(rows, moe);

  float* gathered = floats(gathered_, rows * moe.top * hidden);
  float* computed = floats(computed_, rows * moe.top * hidden);
  kernels::gather_rows(context, x, sources_, hidden, gathered);
  for (uint32_t expert = 0; expert < moe.num_experts; ++expert) {
    const size_t first = starts_[expert];
    const size_t count = starts_[expert + 1] - first;
    if (count == 0) continue;
    gated(context, config, layer.experts[expert], gathered + first * hidden, count,
          computed + first * hidden);
  }
  kernels::combine_rows(context, computed, places_.data(), weights, moe.top, out, rows, hidden);
}

}  // namespace quire::backend::cpu
