// The attention of CudaOps: from the projection of queries, keys and values to that of what they give.
#include <algorithm>
#include <optional>
#include <utility>

#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/decode_attention.h"
#include "backend/cuda/rms_norm.h"
#include "backend/cuda/rope.h"

namespace quire::backend::cuda {

using decoder::Rows;

/// Only notes of what, where attend() follows: of few rows, one kernel multiplies and rotates.
void CudaOps::project_qkv(uint32_t layer, Rows from) {
  if (config_.qk_norm == model::QkNorm::kNone) {
    qkv_of_ = at(from);
    return;
  }
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
  const auto kind = static_cast<size_t>(rotation.kind);
  auto* angles = reinterpret_cast<float*>(arena_.angles[kind]);
  if (known_angles_[kind] < rotation.positions) {
    const size_t known = size_t{known_angles_[kind]} * rotation.rotary;
    const size_t all = size_t{rotation.positions} * rotation.rotary;
    copy_to_device(angles + known, rotation.cos_sin + known, (all - known) * sizeof(float), stream_);
    known_angles_[kind] = rotation.positions;
  }
  rotation_ = angles;
  rotary_ = rotation.rotary;
}

/// The rotated queries in Rows::kQkv, and the rotated keys and the values in their blocks.
void CudaOps::rotate_and_store(const Matrix& weights, const RopeArgs& args) {
  const void* x = std::exchange(qkv_of_, nullptr);
  auto product = x == nullptr ? std::nullopt : by_few_rows(weights, x, args.qkv);
  if (product && few_rows_rotates(args.blocks.head_dim, args.rotary)) {
    product->rope = args;
    return check(few_rows(*product, stream_), "a rotated product of few rows");
  }
  if (x != nullptr) multiply(weights, x, args.qkv, args.rows, dtype_);
  check(rope(args, stream_), "rope");
}

void CudaOps::attend(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores) {
  rotate_and_store(weights_.layers[layer].qkv,
                   {.blocks = cache_.blocks(),
                    .qkv = at(Rows::kQkv),
                    .num_heads = config_.num_heads,
                    .rotary = std::exchange(rotary_, 0),
                    .cos_sin = rotation_,
                    .positions = input(inputs_.positions),
                    .places = input(inputs_.places + size_t{group} * rows_of_batch_),
                    .cache = cache_.layer(layer),
                    .rows = rows_of_batch_});
  if (!has_tiles_) return attend_rows(layer, group, scores);
  attend_tiles(layer, group, scores);
}

/// A block of threads for each row.
void CudaOps::attend_rows(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores) {
  const size_t element = dtype_bytes(dtype_);
  const uint32_t at_once = attention_rows(config_, limits_);
  for (uint32_t first = 0; first < rows_of_batch_; first += at_once) {
    check(decode_attention({.blocks = cache_.blocks(),
                            .cache = cache_.layer(layer),
                            .q = at(Rows::kQkv) + first * qkv_width() * element,
                            .q_stride = static_cast<uint32_t>(qkv_width()),
                            .out = at(Rows::kAttended) + first * q_width() * element,
                            .num_queries = std::min(at_once, rows_of_batch_ - first),
                            .num_heads = config_.num_heads,
                            .block_tables = tables(group),
                            .table_stride = inputs_.table_stride,
                            .seqs = input(inputs_.seqs + first),
                            .lengths = input(inputs_.lengths + first),
                            .max_spans = spans_[group],
                            .partials = reinterpret_cast<float*>(arena_.partials),
                            .scale = scores.scale,
                            .window = scores.window,
                            .soft_cap = scores.soft_cap},
                           stream_),
          "decode_attention");
  }
}

/// A block of threads for each tile of rows, or for each span of one.
void CudaOps::attend_tiles(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores) {
  const bool shares = spans_[group] > 0;
  check(paged_attention({.blocks = cache_.blocks(),
                         .cache = cache_.layer(layer),
                         .q = at(Rows::kQkv),
                         .q_stride = static_cast<uint32_t>(qkv_width()),
                         .out = at(Rows::kAttended),
                         .num_rows = rows_of_batch_,
                         .num_heads = config_.num_heads,
                         .block_tables = tables(group),
                         .table_stride = inputs_.table_stride,
                         .tiles = reinterpret_cast<const QueryTile*>(input(inputs_.tiles)),
                         .num_tiles = inputs_.num_tiles,
                         .num_large_tiles = num_large_tiles_,
                         .shared_spans = spans_[group],
                         .most_shared_tokens = most_small_tokens_,
                         .partials = shares ? reinterpret_cast<float*>(arena_.partials) : nullptr,
                         .scale = scores.scale,
                         .window = scores.window,
                         .soft_cap = scores.soft_cap},
                        stream_),
        "paged_attention");
}

void CudaOps::project_out(uint32_t layer) {
  multiply(weights_.layers[layer].o, at(Rows::kAttended), at(Rows::kAdded), rows_of_batch_, dtype_);
}

}  // namespace quire::backend::cuda
