#include "backend/cuda/cuda_ops.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "backend/cuda/decode_attention.h"
#include "backend/cuda/elementwise.h"
#include "backend/cuda/embed.h"
#include "backend/cuda/gated.h"
#include "backend/cuda/rms_norm.h"
#include "backend/cuda/rope.h"
#include "base/error.h"

namespace quire::backend::cuda {
namespace {

using decoder::Norm;
using decoder::Rows;

/// Rows whose attention is computed at once: so many that they fill a device, and so few that their partial
/// results take little memory.
constexpr uint32_t kAttentionRows = 256;

/// Gives out parts of one allocation, of which the size is found first.
class Parts {
 public:
  explicit Parts(std::byte* base) : base_(base) {}
  std::byte* take(size_t bytes) {
    constexpr size_t kAlignment = 256;
    std::byte* part = base_ == nullptr ? nullptr : base_ + size_;
    size_ += (bytes + kAlignment - 1) / kAlignment * kAlignment;
    return part;
  }
  size_t size() const { return size_; }

 private:
  std::byte* base_;
  size_t size_ = 0;
};

}  // namespace

CudaOps::CudaOps(const model::ModelConfig& config, const ModelWeights& weights, KvCache& cache, Gemm& gemm,
                 Stream stream, const StepLimits& limits)
    : config_(config),
      weights_(weights),
      cache_(cache),
      gemm_(gemm),
      stream_(stream),
      limits_(limits),
      dtype_(weights.dtype) {
  if (!supports_decode_attention(cache.blocks(), config.num_heads)) {
    throw Error(
        fmt::format("--device cuda has no attention for {} heads of {}, {} K/V heads and blocks of {} "
                    "tokens (--device cpu has)",
                    config.num_heads, config.head_dim, config.num_kv_heads, cache.blocks().block_size));
  }
  allocate();
}

void CudaOps::allocate() {
  const size_t element = dtype_bytes(dtype_);
  const size_t rows = padded_rows(limits_.rows);
  const size_t selected = padded_rows(limits_.logit_rows);
  const uint32_t ffn = weights_.layers.empty() ? 0 : weights_.layers.front().down.k;
  DecodeAttentionArgs attention{};
  attention.blocks = cache_.blocks();
  attention.num_queries = std::min(limits_.rows, kAttentionRows);
  attention.num_heads = config_.num_heads;
  attention.max_spans = attention_spans(limits_.positions, 0);
  const auto lay_out = [&](std::byte* base) {
    Parts parts(base);
    const auto activations = [&](Rows which, size_t width) {
      rows_[static_cast<size_t>(which)] = parts.take(rows * width * element);
    };
    activations(Rows::kResidual, config_.hidden_size);
    activations(Rows::kNormed, config_.hidden_size);
    activations(Rows::kQkv, qkv_width());
    activations(Rows::kAttended, q_width());
    activations(Rows::kAdded, config_.hidden_size);
    gate_up_ = parts.take(rows * 2 * ffn * element);
    ffn_ = parts.take(rows * ffn * element);
    selected_ = parts.take(selected * config_.hidden_size * element);
    logits_ = parts.take(selected * config_.vocab_size * sizeof(float));
    partials_ = parts.take(decode_attention_scratch(attention) * sizeof(float));
    places_ = parts.take(limits_.logit_rows * sizeof(uint32_t));
    return parts.size();
  };
  memory_ = DeviceMemory(lay_out(nullptr), "activations");
  lay_out(memory_.data());
  // The rows that only fill a tile are multiplied too.
  clear(memory_.data(), memory_.size(), stream_);
  const size_t groups = cache_.num_groups();
  const size_t numbers = limits_.rows * (4 + groups) + groups * limits_.seqs * size_t{table_stride()};
  input_ = DeviceMemory(numbers * sizeof(uint32_t), "the batch");
}

const float* CudaOps::weight_of(Norm norm, uint32_t index) const {
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

void CudaOps::begin(const decoder::Batch& batch) {
  if (batch.tokens.size() > limits_.rows || batch.seqs.size() > limits_.seqs) {
    throw Error(fmt::format("CUDA: a step of {} tokens in {} sequences, where there is memory for {} in {}",
                            batch.tokens.size(), batch.seqs.size(), limits_.rows, limits_.seqs));
  }
  rows_of_batch_ = static_cast<uint32_t>(batch.tokens.size());
  rotary_ = 0;
  fill_inputs(batch);
  copy_to_device(input_.data(), host_input_.data(), inputs_.numbers * sizeof(uint32_t), stream_);
}

/// All that kernels read of the batch, to be copied at once.
void CudaOps::fill_inputs(const decoder::Batch& batch) {
  const size_t rows = batch.tokens.size();
  const size_t groups = cache_.num_groups();
  const size_t stride = table_stride();
  inputs_ = {.tokens = 0,
             .positions = rows,
             .lengths = 2 * rows,
             .seqs = 3 * rows,
             .places = 4 * rows,
             .tables = (4 + groups) * rows,
             .numbers = (4 + groups) * rows + groups * batch.seqs.size() * stride};
  host_input_.assign(inputs_.numbers, 0);
  longest_ = 0;
  const uint32_t block_size = cache_.blocks().block_size;
  size_t row = 0;
  for (size_t index = 0; index < batch.seqs.size(); ++index) {
    const decoder::BatchSeq& seq = batch.seqs[index];
    for (size_t group = 0; group < groups; ++group) {
      const std::vector<BlockId>& table = seq.block_tables[group];
      std::copy_n(table.begin(), std::min(table.size(), stride),
                  host_input_.begin() +
                      static_cast<ptrdiff_t>(inputs_.tables + (group * batch.seqs.size() + index) * stride));
    }
    for (const size_t end = row + seq.num_tokens; row < end; ++row) {
      const uint32_t position = batch.positions[row];
      host_input_[inputs_.tokens + row] = static_cast<uint32_t>(batch.tokens[row]);
      host_input_[inputs_.positions + row] = position;
      host_input_[inputs_.lengths + row] = position + 1;
      host_input_[inputs_.seqs + row] = static_cast<uint32_t>(index);
      longest_ = std::max(longest_, position + 1);
      for (size_t group = 0; group < groups; ++group) {
        host_input_[inputs_.places + group * rows + row] =
            seq.block_tables[group][position / block_size] * block_size + position % block_size;
      }
    }
  }
}

void CudaOps::norm(Norm norm, uint32_t layer, Rows from, Rows to) {
  const uint32_t hidden = config_.hidden_size;
  check(rms_norm({.dtype = dtype_,
                  .x = at(from),
                  .residual = nullptr,
                  .factor = 1.0F,
                  .weight = weight_of(norm, layer),
                  .y = at(to),
                  .eps = eps(),
                  .rows = rows_of_batch_,
                  .width = hidden,
                  .heads = 1,
                  .stride = hidden},
                 stream_),
        "rms_norm");
}

void CudaOps::add(float factor) {
  check(cuda::add({.dtype = dtype_,
                   .y = at(Rows::kResidual),
                   .y_factor = 1.0F,
                   .x = at(Rows::kAdded),
                   .x_factor = factor,
                   .count = size_t{rows_of_batch_} * config_.hidden_size},
                  stream_),
        "add");
}

void CudaOps::add_and_norm(float factor, Norm then, uint32_t layer) {
  const uint32_t hidden = config_.hidden_size;
  check(rms_norm({.dtype = dtype_,
                  .x = at(Rows::kAdded),
                  .residual = at(Rows::kResidual),
                  .factor = factor,
                  .weight = weight_of(then, layer),
                  .y = at(Rows::kNormed),
                  .eps = eps(),
                  .rows = rows_of_batch_,
                  .width = hidden,
                  .heads = 1,
                  .stride = hidden},
                 stream_),
        "rms_norm");
}

void CudaOps::embed(float scale) {
  std::byte* residual = at(Rows::kResidual);
  check(cuda::embed({dtype_, weights_.embedding, input(inputs_.tokens), residual, rows_of_batch_,
                     config_.hidden_size},
                    stream_),
        "embed");
  if (scale == 1.0F) return;
  check(cuda::add({dtype_, residual, scale, nullptr, 0.0F, size_t{rows_of_batch_} * config_.hidden_size},
                  stream_),
        "scaling of the embeddings");
}

void CudaOps::multiply(const Matrix& weights, const void* x, void* y, uint32_t rows, DType out) {
  gemm_.multiply({.dtype = dtype_,
                  .out_dtype = out,
                  .x = x,
                  .weights = weights.data,
                  .bias = weights.bias,
                  .y = y,
                  .rows = rows,
                  .n = weights.n,
                  .k = weights.k});
}

void CudaOps::project_qkv(uint32_t layer, Rows from) {
  multiply(weights_.layers[layer].qkv, at(from), at(Rows::kQkv), rows_of_batch_, dtype_);
}

void CudaOps::norm_qk(uint32_t index) {
  const LayerWeights& layer = weights_.layers[index];
  const bool whole = config_.qk_norm == model::QkNorm::kWhole;
  const auto normalize = [&](size_t first, uint32_t heads, const float* weight) {
    std::byte* x = at(Rows::kQkv) + first * dtype_bytes(dtype_);
    check(rms_norm({.dtype = dtype_,
                    .x = x,
                    .residual = nullptr,
                    .factor = 1.0F,
                    .weight = weight,
                    .y = x,
                    .eps = eps(),
                    .rows = rows_of_batch_ * (whole ? 1 : heads),
                    .width = whole ? heads * config_.head_dim : config_.head_dim,
                    .heads = whole ? 1 : heads,
                    .stride = static_cast<uint32_t>(qkv_width())},
                   stream_),
          "rms_norm of heads");
  };
  normalize(0, config_.num_heads, layer.q_norm);
  normalize(q_width(), config_.num_kv_heads, layer.k_norm);
}

/// Only notes which: attend() rotates as it writes the keys into their blocks.
void CudaOps::rotate(const decoder::Rotation& rotation) {
  Angles& angles = angles_[static_cast<size_t>(rotation.kind)];
  if (angles.memory.size() == 0) {
    angles.memory =
        DeviceMemory(size_t{limits_.positions} * rotation.rotary * sizeof(float), "the angles of RoPE");
  }
  if (angles.positions < rotation.positions) {
    const size_t known = size_t{angles.positions} * rotation.rotary;
    const size_t all = size_t{rotation.positions} * rotation.rotary;
    copy_to_device(angles.memory.as<float>() + known, rotation.cos_sin + known, (all - known) * sizeof(float),
                   stream_);
    angles.positions = rotation.positions;
  }
  rotation_ = &angles;
  rotary_ = rotation.rotary;
}

void CudaOps::attend(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores) {
  check(rope({.blocks = cache_.blocks(),
              .qkv = at(Rows::kQkv),
              .num_heads = config_.num_heads,
              .rotary = rotary_,
              .cos_sin = rotary_ == 0 ? nullptr : rotation_->memory.as<float>(),
              .positions = input(inputs_.positions),
              .places = input(inputs_.places + size_t{group} * rows_of_batch_),
              .cache = cache_.layer(layer),
              .rows = rows_of_batch_},
             stream_),
        "rope");
  rotary_ = 0;
  const size_t element = dtype_bytes(dtype_);
  const size_t num_seqs = (inputs_.numbers - inputs_.tables) / table_stride() / cache_.num_groups();
  for (uint32_t first = 0; first < rows_of_batch_; first += kAttentionRows) {
    check(decode_attention({.blocks = cache_.blocks(),
                            .cache = cache_.layer(layer),
                            .q = at(Rows::kQkv) + first * qkv_width() * element,
                            .q_stride = static_cast<uint32_t>(qkv_width()),
                            .out = at(Rows::kAttended) + first * q_width() * element,
                            .num_queries = std::min(kAttentionRows, rows_of_batch_ - first),
                            .num_heads = config_.num_heads,
                            .block_tables = input(inputs_.tables + group * num_seqs * table_stride()),
                            .table_stride = table_stride(),
                            .seqs = input(inputs_.seqs + first),
                            .lengths = input(inputs_.lengths + first),
                            .max_spans = most_attention_spans(longest_, scores.window),
                            .partials = reinterpret_cast<float*>(partials_),
                            .scale = scores.scale,
                            .window = scores.window},
                           stream_),
          "decode_attention");
  }
}

void CudaOps::project_out(uint32_t layer) {
  multiply(weights_.layers[layer].o, at(Rows::kAttended), at(Rows::kAdded), rows_of_batch_, dtype_);
}

void CudaOps::feed_forward(uint32_t index, Rows from) {
  const LayerWeights& layer = weights_.layers[index];
  multiply(layer.gate_up, at(from), gate_up_, rows_of_batch_, dtype_);
  check(gated({.dtype = dtype_,
               .activation = config_.activation,
               .gate_up = gate_up_,
               .out = ffn_,
               .rows = rows_of_batch_,
               .width = layer.down.k},
              stream_),
        "gated");
  multiply(layer.down, ffn_, at(Rows::kAdded), rows_of_batch_, dtype_);
}

/// The final norm of these rows, in selected_.
void CudaOps::select(std::span<const uint32_t> rows) {
  if (rows.size() > limits_.logit_rows) {
    throw Error(
        fmt::format("CUDA: {} rows at once, where there is memory for {}", rows.size(), limits_.logit_rows));
  }
  const auto count = static_cast<uint32_t>(rows.size());
  const uint32_t hidden = config_.hidden_size;
  copy_to_device(places_, rows.data(), rows.size_bytes(), stream_);
  check(cuda::embed({dtype_, at(Rows::kResidual), reinterpret_cast<const uint32_t*>(places_), selected_,
                     count, hidden},
                    stream_),
        "the choice of rows");
  check(rms_norm({.dtype = dtype_,
                  .x = selected_,
                  .residual = nullptr,
                  .factor = 1.0F,
                  .weight = weights_.final_norm,
                  .y = selected_,
                  .eps = eps(),
                  .rows = count,
                  .width = hidden,
                  .heads = 1,
                  .stride = hidden},
                 stream_),
        "rms_norm");
}

std::span<const float> CudaOps::hidden(std::span<const uint32_t> rows) {
  select(rows);
  const size_t count = rows.size() * config_.hidden_size;
  host_rows_.resize(count);
  if (dtype_ == DType::kF32) {
    copy_to_host(host_rows_.data(), selected_, count * sizeof(float), stream_);
    synchronize(stream_);
    return host_rows_;
  }
  host_halves_.resize(count);
  copy_to_host(host_halves_.data(), selected_, count * sizeof(uint16_t), stream_);
  synchronize(stream_);
  const auto widen = dtype_ == DType::kF16 ? f16_to_f32 : bf16_to_f32;
  std::transform(host_halves_.begin(), host_halves_.end(), host_rows_.begin(), widen);
  return host_rows_;
}

std::span<const float> CudaOps::logits(std::span<const uint32_t> rows, float scale, float cap) {
  select(rows);
  multiply(weights_.head, selected_, logits_, static_cast<uint32_t>(rows.size()), DType::kF32);
  host_rows_.resize(rows.size() * config_.vocab_size);
  copy_to_host(host_rows_.data(), logits_, host_rows_.size() * sizeof(float), stream_);
  synchronize(stream_);
  if (scale != 1.0F) {
    for (float& logit : host_rows_) logit *= scale;
  }
  if (cap != 0.0F) {
    for (float& logit : host_rows_) logit = cap * std::tanh(logit / cap);
  }
  return host_rows_;
}

}  // namespace quire::backend::cuda
