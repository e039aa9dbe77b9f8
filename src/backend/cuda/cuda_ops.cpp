#include "backend/cuda/cuda_ops.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>

#include <fmt/format.h>

#include "backend/cuda/elementwise.h"
#include "backend/cuda/embed.h"
#include "backend/cuda/rms_norm.h"
#include "base/error.h"

namespace quire::backend::cuda {
namespace {

using decoder::Norm;
using decoder::Rows;

/// Blocks of threads with small tiles of attention below which spans are shared among more of them: about as
/// many as a large device holds at once. Measured on an H200 (32 heads of 64 for 8 K/V heads, 4,096 keys): of
/// 64 blocks, which leave most multiprocessors idle, sharing makes attention three times as fast (28 µs, not
/// 85); of 512, to write partial results and merge them costs a little more than it gains (143 µs, not 139).
constexpr uint32_t kBlocksToShare = 512;
static_assert(sizeof(QueryTile) == kNumbersOfTile * sizeof(uint32_t));

}  // namespace

CudaOps::CudaOps(const model::ModelConfig& config, const ModelWeights& weights, KvCache& cache, Gemm& gemm,
                 Stream stream, const StepLimits& limits)
    : config_(config),
      weights_(weights),
      cache_(cache),
      gemm_(gemm),
      stream_(stream),
      limits_(limits),
      dtype_(weights.dtype),
      memory_(bytes_for(config, dtype_, cache.blocks().block_size, limits), "activations"),
      arena_(lay_out_activations(config, dtype_, cache.blocks().block_size, limits), memory_.data()),
      has_tiles_(supports_paged_attention(cache.blocks(), config.num_heads)),
      input_staging_(arena_.input_bytes, "the inputs of steps"),
      places_staging_(limits.logit_rows * sizeof(uint32_t), "the inputs of steps"),
      graphs_(stream) {
  if (!has_tiles_ && !supports_decode_attention(cache.blocks(), config.num_heads)) {
    throw Error(
        fmt::format("--device cuda has no attention for {} heads of {}, {} K/V heads and blocks of {} "
                    "tokens (--device cpu has)",
                    config.num_heads, config.head_dim, config.num_kv_heads, cache.blocks().block_size));
  }
  // The rows that only fill a tile are multiplied too.
  clear(memory_.data(), memory_.size(), stream_);
}

size_t CudaOps::bytes_for(const model::ModelConfig& config, DType dtype, uint32_t block_size,
                          const StepLimits& limits) {
  return lay_out_activations(config, dtype, block_size, limits).bytes;
}

bool CudaOps::prepare(Gemm& gemm, const ModelWeights& weights, const StepLimits& limits) {
  struct Matrices {
    std::vector<const void*> data;
    const void* bias;
  };
  std::map<GemmShape, Matrices> shapes;
  const auto add = [&](const Matrix& matrix, DType out) {
    if (matrix.scales != nullptr) return;  // int8_product() needs no choice
    const GemmShape shape{weights.dtype, out, matrix.n, matrix.k, matrix.bias != nullptr};
    Matrices& all = shapes[shape];
    all.data.push_back(matrix.data);
    all.bias = matrix.bias;
  };
  for (const LayerWeights& layer : weights.layers) {
    add(layer.qkv, weights.dtype);
    add(layer.o, weights.dtype);
    if (layer.router.data != nullptr) {  // expert_product() needs no choice
      add(layer.router, DType::kF32);
      continue;
    }
    add(layer.gate_up, weights.dtype);
    add(layer.down, weights.dtype);
  }
  const Matrix& head = weights.head;
  const void* const data[] = {head.data};
  bool tried = head.scales != nullptr ||
               gemm.prepare({weights.dtype, DType::kF32, head.n, head.k, head.bias != nullptr}, data,
                            head.bias, limits.logit_rows);
  for (const auto& [shape, all] : shapes) tried &= gemm.prepare(shape, all.data, all.bias, limits.rows);
  return tried;
}

CudaOps::Arena::Arena(const Activations& all, std::byte* base)
    : partial_bytes(all.of(Activation::kPartials).bytes), input_bytes(all.of(Activation::kInput).bytes) {
  const auto at = [&](Activation which) { return base + all.of(which).offset; };
  for (size_t i = 0; i < std::size(rows); ++i) rows[i] = base + all.buffers[i].offset;
  static_assert(static_cast<size_t>(Activation::kAdded) == static_cast<size_t>(Rows::kAdded));
  gate_up = at(Activation::kGateUp);
  ffn = at(Activation::kFfn);
  ffn_of_few = at(Activation::kFfnOfFew);
  routed = at(Activation::kRouted);
  choices = at(Activation::kChoices);
  of_experts = at(Activation::kOfExperts);
  selected = at(Activation::kSelected);
  logits = at(Activation::kLogits);
  partials = at(Activation::kPartials);
  places = at(Activation::kPlaces);
  input = at(Activation::kInput);
  angles[static_cast<size_t>(model::LayerRope::kMain)] = at(Activation::kMainAngles);
  angles[static_cast<size_t>(model::LayerRope::kLocal)] = at(Activation::kLocalAngles);
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
  seqs_of_batch_ = static_cast<uint32_t>(batch.seqs.size());
  is_decode_ = std::ranges::all_of(batch.seqs, [](const auto& seq) { return seq.num_tokens == 1; });
  cut_into_tiles(batch);
  lay_out_inputs(batch);
  count_spans();
  fill_inputs(batch, reinterpret_cast<uint32_t*>(input_staging_.take()));
  input_staging_.copy(arena_.input, inputs_.numbers * sizeof(uint32_t), stream_);
}

/// Batches with prompts seldom have a shape again, and their kernels take longer than to launch them.
void CudaOps::compute_layers(const std::function<void()>& layers) {
  // An angle that is still to be copied must not become a part of a graph.
  const auto lacks = [this](uint32_t known) { return known != 0 && known < longest_; };
  if (!is_decode_ || std::ranges::any_of(known_angles_, lacks)) return layers();
  graphs_.run({rows_of_batch_, inputs_.table_stride, spans_, late_tokens_}, layers);
}

/// A tile has tokens of one sequence. Where large tiles would be few, all are small.
void CudaOps::cut_into_tiles(const decoder::Batch& batch) {
  tiles_.clear();
  num_large_tiles_ = 0;
  most_small_tokens_ = 0;
  if (!has_tiles_) return;
  const uint32_t small = tokens_of_tile(cache_.blocks(), config_.num_heads, TileSize::kSmall);
  const uint32_t large = tokens_of_tile(cache_.blocks(), config_.num_heads, TileSize::kLarge);
  uint32_t in_large = 0;
  for (const decoder::BatchSeq& seq : batch.seqs) in_large += (seq.num_tokens + large - 1) / large;
  const uint32_t most = in_large * config_.num_kv_heads < limits_.few_blocks ? small : large;
  uint32_t row = 0;
  for (uint32_t index = 0; index < batch.seqs.size(); ++index) {
    const decoder::BatchSeq& seq = batch.seqs[index];
    for (uint32_t done = 0; done < seq.num_tokens; done += most) {
      tiles_.push_back({.sequence = index,
                        .first_row = row + done,
                        .num_tokens = std::min(most, seq.num_tokens - done),
                        .first_position = seq.first_position + done});
      const uint32_t count = tiles_.back().num_tokens;
      num_large_tiles_ += count > small ? 1 : 0;
      if (count <= small) most_small_tokens_ = std::max(most_small_tokens_, count);
    }
    row += seq.num_tokens;
  }
  // Of the large ones those with most keys first, so that none of these is left alone at the end.
  const auto place = [small](const QueryTile& tile) {
    return tile.num_tokens > small ? tile.first_position + 1 : 0;
  };
  std::ranges::stable_sort(tiles_, std::ranges::greater{}, place);
}

void CudaOps::lay_out_inputs(const decoder::Batch& batch) {
  const size_t rows = batch.tokens.size();
  const size_t groups = cache_.num_groups();
  longest_ = 0;
  for (const decoder::BatchSeq& seq : batch.seqs) {
    longest_ = std::max(longest_, seq.first_position + seq.num_tokens);
  }
  // Whole spans, so that decodes have the same shape again and again.
  const uint32_t block_size = cache_.blocks().block_size;
  const uint32_t whole = (longest_ + kSpanKeys - 1) / kSpanKeys * kSpanKeys;
  const uint32_t stride = (std::min(whole, limits_.positions) + block_size - 1) / block_size;
  size_t numbers = 0;
  const auto take = [&](size_t count) {
    numbers += count;
    return numbers - count;
  };
  inputs_ = {.tokens = take(rows),
             .positions = take(rows),
             .lengths = take(rows),
             .seqs = take(rows),
             .tiles = take(tiles_.size() * kNumbersOfTile),
             .num_tiles = static_cast<uint32_t>(tiles_.size()),
             .places = take(groups * rows),
             .tables = take(groups * batch.seqs.size() * stride),
             .table_stride = stride};
  inputs_.numbers = numbers;
}

/// What launches of attention get, by K/V group. (A window that all positions fit in counts as none there.)
void CudaOps::count_spans() {
  spans_.clear();
  for (const uint32_t window : cache_.groups().windows)
    spans_.push_back(has_tiles_ ? shared_spans(window) : most_attention_spans(longest_, window));
}

/// Small tiles, if there are not many, share their spans among more blocks of threads, as far as there is
/// memory for what these leave.
uint32_t CudaOps::shared_spans(uint32_t window) const {
  const std::span small = std::span(tiles_).subspan(num_large_tiles_);
  if (small.size() * config_.num_kv_heads >= kBlocksToShare) return 0;
  uint32_t spans = 0;
  for (const QueryTile& tile : small) spans = std::max(spans, tile_spans(tile, window));
  const size_t scratch = rows_of_batch_ * partial_floats(config_.num_heads, config_.head_dim, spans);
  return spans > 1 && scratch * sizeof(float) <= arena_.partial_bytes ? spans : 0;
}

/// All that kernels read of the batch, to be copied at once.
void CudaOps::fill_inputs(const decoder::Batch& batch, uint32_t* to) {
  const size_t rows = batch.tokens.size();
  const size_t groups = cache_.num_groups();
  const size_t stride = inputs_.table_stride;
  std::fill_n(to, inputs_.numbers, 0);
  if (!tiles_.empty()) std::memcpy(to + inputs_.tiles, tiles_.data(), tiles_.size() * sizeof(QueryTile));
  const uint32_t block_size = cache_.blocks().block_size;
  size_t row = 0;
  for (size_t index = 0; index < batch.seqs.size(); ++index) {
    const decoder::BatchSeq& seq = batch.seqs[index];
    for (size_t group = 0; group < groups; ++group) {
      const std::vector<BlockId>& table = seq.block_tables[group];
      std::copy_n(table.begin(), std::min(table.size(), stride),
                  to + inputs_.tables + (group * batch.seqs.size() + index) * stride);
    }
    for (const size_t end = row + seq.num_tokens; row < end; ++row) {
      const uint32_t position = batch.positions[row];
      to[inputs_.tokens + row] = static_cast<uint32_t>(batch.tokens[row]);
      to[inputs_.positions + row] = position;
      to[inputs_.lengths + row] = position + 1;
      to[inputs_.seqs + row] = static_cast<uint32_t>(index);
      for (size_t group = 0; group < groups; ++group) {
        to[inputs_.places + group * rows + row] =
            seq.block_tables[group][position / block_size] * block_size + position % block_size;
      }
    }
  }
  for (const LateRow& late : late_rows_) to[inputs_.tokens + late.row] = kLateBit | late.place;
  late_rows_ = {};
}

/// y = norm of x [rows, hidden], or of the residual after factor * x was added to it, if there is one.
void CudaOps::norm_rows(const void* x, void* residual, float factor, const float* weight, void* y,
                        uint32_t rows) {
  check(rms_norm({.dtype = dtype_,
                  .x = x,
                  .residual = residual,
                  .factor = factor,
                  .weight = weight,
                  .y = y,
                  .eps = eps(),
                  .rows = rows,
                  .width = config_.hidden_size,
                  .heads = 1,
                  .stride = config_.hidden_size},
                 stream_),
        "rms_norm");
}

void CudaOps::norm(Norm norm, uint32_t layer, Rows from, Rows to) {
  norm_rows(at(from), nullptr, 1.0F, weight_of(norm, layer), at(to), rows_of_batch_);
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
  norm_rows(at(Rows::kAdded), at(Rows::kResidual), factor, weight_of(then, layer), at(Rows::kNormed),
            rows_of_batch_);
}

void CudaOps::embed(float scale) {
  rotary_ = 0;  // also where a pass before this was broken off
  qkv_of_ = nullptr;
  std::byte* residual = at(Rows::kResidual);
  check(cuda::embed({dtype_, weights_.embedding, input(inputs_.tokens), residual, rows_of_batch_,
                     config_.hidden_size, late_tokens_},
                    stream_),
        "embed");
  if (scale == 1.0F) return;
  check(cuda::add({dtype_, residual, scale, nullptr, 0.0F, size_t{rows_of_batch_} * config_.hidden_size},
                  stream_),
        "scaling of the embeddings");
}

void CudaOps::multiply(const Matrix& weights, const void* x, void* y, uint32_t rows, DType out) {
  if (weights.scales != nullptr) return multiply_integers(weights, x, y, rows, out, 1, {});
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

std::optional<FewRowsArgs> CudaOps::by_few_rows(const Matrix& weights, const void* x, void* y) const {
  const GemmShape shape{dtype_, dtype_, weights.n, weights.k, weights.bias != nullptr};
  if (weights.scales != nullptr || !gemm_.takes_few_rows(shape, rows_of_batch_)) return std::nullopt;
  return FewRowsArgs{.dtype = dtype_,
                     .out_dtype = dtype_,
                     .x = x,
                     .weights = weights.data,
                     .bias = weights.bias,
                     .y = y,
                     .rows = rows_of_batch_,
                     .n = weights.n,
                     .k = weights.k};
}

/// The final norm of these rows, in selected_.
void CudaOps::select(std::span<const uint32_t> rows) {
  if (rows.size() > limits_.logit_rows) {
    throw Error(
        fmt::format("CUDA: {} rows at once, where there is memory for {}", rows.size(), limits_.logit_rows));
  }
  const auto count = static_cast<uint32_t>(rows.size());
  const uint32_t hidden = config_.hidden_size;
  std::memcpy(places_staging_.take(), rows.data(), rows.size_bytes());
  places_staging_.copy(arena_.places, rows.size_bytes(), stream_);
  check(cuda::embed({dtype_, at(Rows::kResidual), reinterpret_cast<const uint32_t*>(arena_.places),
                     arena_.selected, count, hidden},
                    stream_),
        "the choice of rows");
  norm_rows(arena_.selected, nullptr, 1.0F, weights_.final_norm, arena_.selected, count);
}

std::span<const float> CudaOps::hidden(std::span<const uint32_t> rows) {
  select(rows);
  const size_t count = rows.size() * config_.hidden_size;
  host_rows_.resize(count);
  if (dtype_ == DType::kF32) {
    copy_to_host(host_rows_.data(), arena_.selected, count * sizeof(float), stream_);
    synchronize(stream_);
    return host_rows_;
  }
  host_halves_.resize(count);
  copy_to_host(host_halves_.data(), arena_.selected, count * sizeof(uint16_t), stream_);
  synchronize(stream_);
  const auto widen = dtype_ == DType::kF16 ? f16_to_f32 : bf16_to_f32;
  std::transform(host_halves_.begin(), host_halves_.end(), host_rows_.begin(), widen);
  return host_rows_;
}

DeviceLogits CudaOps::logits_on_device(std::span<const uint32_t> rows, float scale, float cap) {
  select(rows);
  multiply(weights_.head, arena_.selected, arena_.logits, static_cast<uint32_t>(rows.size()), DType::kF32);
  auto* logits = reinterpret_cast<float*>(arena_.logits);
  const size_t stride = result_stride(config_.vocab_size, DType::kF32);
  const size_t count = rows.size() * stride;
  if (scale != 1.0F) check(cuda::add({DType::kF32, logits, scale, nullptr, 0.0F, count}, stream_), "scaling");
  if (cap != 0.0F) check(soft_cap({logits, cap, count}, stream_), "soft_cap");
  return {logits, static_cast<uint32_t>(stride)};
}

std::span<const float> CudaOps::logits(std::span<const uint32_t> rows, float scale, float cap) {
  logits_on_device(rows, scale, cap);
  const size_t vocab = config_.vocab_size;
  const size_t stride = result_stride(config_.vocab_size, DType::kF32);
  host_rows_.resize(rows.size() * stride);
  copy_to_host(host_rows_.data(), arena_.logits, ((rows.size() - 1) * stride + vocab) * sizeof(float),
               stream_);
  synchronize(stream_);
  for (size_t row = 1; stride != vocab && row < rows.size(); ++row) {  // the rows without gaps
    std::memmove(host_rows_.data() + row * vocab, host_rows_.data() + row * stride, vocab * sizeof(float));
  }
  host_rows_.resize(rows.size() * vocab);
  return host_rows_;
}

}  // namespace quire::backend::cuda
