#include "backend/cpu/cpu_ops.h"

#include <algorithm>
#include <iterator>

#include "kernels/elementwise.h"
#include "kernels/matmul.h"

namespace quire::backend::cpu {
namespace {

using decoder::Norm;
using decoder::Rows;

float* grown(Buffer& buffer, size_t count) {
  buffer.reserve(count * sizeof(float));
  return buffer.as<float>();
}

}  // namespace

size_t CpuOps::width_of(Rows which) const {
  switch (which) {
    case Rows::kQkv:
      return qkv_width();
    case Rows::kAttended:
      return q_width();
    case Rows::kResidual:
    case Rows::kNormed:
    case Rows::kAdded:
      break;
  }
  return config_.hidden_size;
}

/// The activations of the batch. The contents of a buffer that is too small for it are lost, but only a batch
/// with more rows makes one too small, and it writes before it reads.
float* CpuOps::at(Rows which) {
  return grown(activations_[static_cast<size_t>(which)], batch_.tokens.size() * width_of(which));
}

void CpuOps::reserve(size_t tokens, size_t logit_rows) {
  for (size_t which = 0; which < std::size(activations_); ++which) {
    Buffer& buffer = activations_[which];
    grown(buffer, tokens * width_of(static_cast<Rows>(which)));
    touch(context_->pool, buffer.bytes());
  }
  feed_forward_.reserve(*context_, config_, weights_.layers, tokens);
  context_->scratch.reserve(scratch_bytes(tokens, logit_rows));
  touch(context_->pool, context_->scratch.bytes());
  grown(logits_, logit_rows * config_.vocab_size);  // large, and most steps need few rows: not touched
}

/// Of the context, for the matmuls; what attention needs besides is little.
size_t CpuOps::scratch_bytes(size_t tokens, size_t logit_rows) const {
  size_t bytes = kernels::matmul_scratch_bytes(*context_, weights_.head, logit_rows);
  for (const LayerWeights& layer : weights_.layers) {
    bytes = std::max({bytes, matmul_scratch_bytes(*context_, layer.qkv, tokens),
                      matmul_scratch_bytes(*context_, layer.o, tokens),
                      FeedForwardPass::scratch_bytes(*context_, layer, tokens)});
  }
  return bytes;
}

const Buffer& CpuOps::weight_of(Norm norm, uint32_t index) const {
  const LayerWeights& layer = weights_.layers[index];
  switch (norm) {
    case Norm::kAttention:
      return layer.attention_norm;
    case Norm::kPostAttention:
      return layer.post_attention_norm;
    case Norm::kFeedForward:
      return layer.ffn_norm;
    case Norm::kPostFeedForward:
      break;
  }
  return layer.post_ffn_norm;
}

void CpuOps::begin(const decoder::Batch& batch) {
  batch_ = batch;
  seqs_.resize(cache_->num_groups());
  for (auto& of_group : seqs_) of_group.clear();
  uint32_t first_row = 0;
  for (const decoder::BatchSeq& seq : batch.seqs) {
    for (uint32_t group = 0; group < seqs_.size(); ++group) {
      seqs_[group].push_back({first_row, seq.num_tokens, seq.first_position, seq.block_tables[group]});
    }
    first_row += seq.num_tokens;
  }
}

void CpuOps::norm(Norm norm, uint32_t layer, Rows from, Rows to) {
  const size_t hidden = config_.hidden_size;
  kernels::rms_norm(*context_, at(from), hidden, weight_of(norm, layer).as<float>(), eps(), at(to), hidden,
                    batch_.tokens.size(), hidden);
}

void CpuOps::add(float factor) {
  kernels::add_in_place(*context_, at(Rows::kResidual), at(Rows::kAdded),
                        batch_.tokens.size() * config_.hidden_size, factor);
}

void CpuOps::embed(float scale) {
  float* residual = at(Rows::kResidual);
  kernels::embed(*context_, weights_.embedding.view(), batch_.tokens, residual);
  if (scale == 1.0F) return;
  kernels::scale_in_place(*context_, residual, batch_.tokens.size() * config_.hidden_size, scale);
}

void CpuOps::project_qkv(uint32_t layer, Rows from) {
  matmul(*context_, weights_.layers[layer].qkv, at(from), config_.hidden_size, batch_.tokens.size(),
         at(Rows::kQkv), qkv_width());
}

/// A head is a row of its own, so it does not matter which way the rows are walked: the one with fewer calls.
void CpuOps::norm_heads(float* x, uint32_t heads, const Buffer& weight) {
  const size_t rows = batch_.tokens.size();
  const size_t dim = config_.head_dim;
  const auto* factors = weight.as<float>();
  if (rows < heads) {
    for (size_t row = 0; row < rows; ++row) {
      float* at = x + row * qkv_width();
      kernels::rms_norm(*context_, at, dim, factors, eps(), at, dim, heads, dim);
    }
  } else {
    for (uint32_t head = 0; head < heads; ++head) {
      float* at = x + head * dim;
      kernels::rms_norm(*context_, at, qkv_width(), factors, eps(), at, qkv_width(), rows, dim);
    }
  }
}

void CpuOps::norm_qk(uint32_t index) {
  const LayerWeights& layer = weights_.layers[index];
  float* q = at(Rows::kQkv);
  float* k = q + q_width();
  if (config_.qk_norm == model::QkNorm::kPerHead) {
    norm_heads(q, config_.num_heads, layer.q_norm);
    norm_heads(k, config_.num_kv_heads, layer.k_norm);
    return;
  }
  const size_t rows = batch_.tokens.size();
  kernels::rms_norm(*context_, q, qkv_width(), layer.q_norm.as<float>(), eps(), q, qkv_width(), rows,
                    q_width());
  kernels::rms_norm(*context_, k, qkv_width(), layer.k_norm.as<float>(), eps(), k, qkv_width(), rows,
                    kv_width());
}

void CpuOps::rotate(const decoder::Rotation& rotation) {
  // Heads of q and of k lie side by side.
  kernels::rope(*context_, at(Rows::kQkv), qkv_width(), batch_.tokens.size(),
                config_.num_heads + config_.num_kv_heads, config_.head_dim, rotation.rotary, rotation.cos_sin,
                batch_.positions.data());
}

void CpuOps::attend(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores) {
  const kernels::KvLayout layout{cache_->dtype(), cache_->block_size(), config_.num_kv_heads,
                                 config_.head_dim};
  const kernels::AttentionParams params{config_.num_heads, scores.scale, scores.window, scores.soft_cap};
  const std::vector<kernels::AttentionSeq>& seqs = seqs_[group];
  const float* q = at(Rows::kQkv);
  const float* k = q + q_width();
  const float* v = k + kv_width();
  kernels::write_kv(*context_, layout, cache_->layer(layer), seqs, k, qkv_width(), v, qkv_width());
  kernels::paged_attention(*context_, layout, cache_->layer(layer), seqs, params, q, qkv_width(),
                           at(Rows::kAttended), q_width());
}

void CpuOps::project_out(uint32_t layer) {
  matmul(*context_, weights_.layers[layer].o, at(Rows::kAttended), q_width(), batch_.tokens.size(),
         at(Rows::kAdded), config_.hidden_size);
}

void CpuOps::feed_forward(uint32_t layer, Rows from) {
  feed_forward_.run(*context_, config_, weights_.layers[layer], at(from), batch_.tokens.size(),
                    at(Rows::kAdded));
}

std::span<const float> CpuOps::hidden(std::span<const uint32_t> places) {
  const size_t rows = places.size();
  const size_t hidden = config_.hidden_size;
  const auto* residual = activations_[static_cast<size_t>(Rows::kResidual)].as<float>();
  const float* from = residual + places.front() * hidden;
  float* out = grown(activations_[static_cast<size_t>(Rows::kNormed)], rows * hidden);
  if (places.back() - places.front() + 1 != rows) {  // not consecutive: gathered first
    for (size_t i = 0; i < rows; ++i) {
      std::copy_n(residual + places[i] * hidden, hidden, out + i * hidden);
    }
    from = out;
  }
  kernels::rms_norm(*context_, from, hidden, weights_.final_norm.as<float>(), eps(), out, hidden, rows,
                    hidden);
  return {out, rows * hidden};
}

std::span<const float> CpuOps::logits(std::span<const uint32_t> places, float scale, float cap) {
  const size_t count = places.size() * config_.vocab_size;
  const std::span<const float> normed = hidden(places);
  float* logits = grown(logits_, count);
  kernels::matmul(*context_, weights_.head, normed.data(), config_.hidden_size, places.size(), logits,
                  config_.vocab_size);
  if (scale != 1.0F) kernels::scale_in_place(*context_, logits, count, scale);
  if (cap != 0.0F) kernels::soft_cap(*context_, logits, count, cap);
  return {logits, count};
}

}  // namespace quire::backend::cpu
