#include "model/decoder.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "model/inspect.h"
#include "model/rope_table.h"
#include "model/weights.h"

namespace quire {
namespace {

/// Activations of a step, f32, grown when a step needs more rows and reused after.
struct Activations {
  Buffer residual;  // [rows, hidden]
  Buffer normed;    // [rows, hidden]; also what a block adds to the residual
  Buffer qkv;       // [rows, q + 2 kv]
  Buffer attended;  // [rows, q]
  Buffer gate_up;   // [rows, 2 ffn]
  Buffer ffn;       // [rows, ffn]
  Buffer logits;    // [logit rows, vocab]
  std::vector<uint32_t> positions;
  std::vector<uint32_t> logit_rows;
  std::vector<AttentionSeq> seqs;
};

float* rows_of(Buffer& buffer, size_t rows, size_t width) {
  buffer.reserve(rows * width * sizeof(float));
  return buffer.as<float>();
}

}  // namespace

struct Decoder::Impl {
  ModelConfig config;
  DType compute = DType::kF32;
  ModelWeights weights;
  RopeTable rope_table;
  Activations act;

  size_t q_width() const { return size_t{config.num_heads} * config.head_dim; }
  size_t kv_width() const { return size_t{config.num_kv_heads} * config.head_dim; }
  size_t qkv_width() const { return q_width() + 2 * kv_width(); }
  float eps() const { return static_cast<float>(config.rms_norm_eps); }

  void check(const KvCache& cache, std::span<const TokenId> tokens, std::span<const DecoderSeq> seqs) const;
  uint32_t lay_out(std::span<const DecoderSeq> seqs);
  void normalize_heads(KernelContext& context, const LayerWeights& layer, float* qkv, size_t rows) const;
  void attention(KernelContext& context, KvCache& cache, uint32_t layer, const float* cos_sin, size_t rows);
  void feed_forward(KernelContext& context, const LayerWeights& layer, size_t rows);
  std::span<const float> head(KernelContext& context);
};

/// The memory that a step touches follows from these numbers, so that a mistake of the caller's ends here.
void Decoder::Impl::check(const KvCache& cache, std::span<const TokenId> tokens,
                          std::span<const DecoderSeq> seqs) const {
  size_t rows = 0;
  for (const DecoderSeq& seq : seqs) {
    const uint64_t end = uint64_t{seq.first_position} + seq.num_tokens;
    const bool covered = end <= seq.block_table.size() * uint64_t{cache.block_size()};
    const bool known = std::all_of(seq.block_table.begin(), seq.block_table.end(),
                                   [&](BlockId block) { return block < cache.num_blocks(); });
    if (end > config.max_positions || !covered || !known || seq.logit_rows > seq.num_tokens) {
      throw Error(
          fmt::format("decoder: a sequence of {} tokens at position {} does not fit its {} blocks or "
                      "the model's {} positions",
                      seq.num_tokens, seq.first_position, seq.block_table.size(), config.max_positions));
    }
    rows += seq.num_tokens;
  }
  if (rows != tokens.size()) {
    throw Error(fmt::format("decoder: {} tokens for {} places", tokens.size(), rows));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= config.vocab_size) {
      throw Error(fmt::format("decoder: token {} is not in the vocabulary of {}", token, config.vocab_size));
    }
  }
}

/// Fills positions, logit rows and attention spans. Returns how many positions RoPE must cover.
uint32_t Decoder::Impl::lay_out(std::span<const DecoderSeq> seqs) {
  act.positions.clear();
  act.logit_rows.clear();
  act.seqs.clear();
  uint32_t end = 0;
  for (const DecoderSeq& seq : seqs) {
    const auto first_row = static_cast<uint32_t>(act.positions.size());
    act.seqs.push_back({first_row, seq.num_tokens, seq.first_position, seq.block_table});
    for (uint32_t i = 0; i < seq.num_tokens; ++i) {
      act.positions.push_back(seq.first_position + i);
      if (i + seq.logit_rows >= seq.num_tokens) act.logit_rows.push_back(first_row + i);
    }
    end = std::max(end, seq.first_position + seq.num_tokens);
  }
  return end;
}

/// RMSNorm of each head of q and of k. A head is a row of its own, so it does not matter which way the rows
/// are walked: the one with fewer calls.
void Decoder::Impl::normalize_heads(KernelContext& context, const LayerWeights& layer, float* qkv,
                                    size_t rows) const {
  const size_t dim = config.head_dim;
  const auto normalize = [&](float* x, uint32_t heads, const float* weight) {
    if (rows < heads) {
      for (size_t row = 0; row < rows; ++row) {
        float* at = x + row * qkv_width();
        rms_norm(context, at, dim, weight, eps(), at, dim, heads, dim);
      }
    } else {
      for (uint32_t head = 0; head < heads; ++head) {
        float* at = x + head * dim;
        rms_norm(context, at, qkv_width(), weight, eps(), at, qkv_width(), rows, dim);
      }
    }
  };
  normalize(qkv, config.num_heads, layer.q_norm.as<float>());
  normalize(qkv + q_width(), config.num_kv_heads, layer.k_norm.as<float>());
}

void Decoder::Impl::attention(KernelContext& context, KvCache& cache, uint32_t index, const float* cos_sin,
                              size_t rows) {
  const LayerWeights& layer = weights.layers[index];
  const size_t hidden = config.hidden_size;
  float* residual = act.residual.as<float>();
  float* normed = rows_of(act.normed, rows, hidden);
  float* qkv = rows_of(act.qkv, rows, qkv_width());
  float* attended = rows_of(act.attended, rows, q_width());

  rms_norm(context, residual, hidden, layer.attention_norm.as<float>(), eps(), normed, hidden, rows, hidden);
  matmul(context, layer.qkv.matrix, normed, hidden, rows, qkv, qkv_width(), layer.qkv.bias_data());
  float* k = qkv + q_width();
  float* v = k + kv_width();
  if (config.qk_norm) normalize_heads(context, layer, qkv, rows);
  // Heads of q and of k lie side by side.
  rope(context, qkv, qkv_width(), rows, config.num_heads + config.num_kv_heads, config.head_dim,
       config.head_dim, cos_sin, act.positions.data());

  const KvLayout layout{cache.dtype(), cache.block_size(), config.num_kv_heads, config.head_dim};
  const AttentionParams params{config.num_heads,
                               static_cast<float>(1.0 / std::sqrt(static_cast<double>(config.head_dim))),
                               config.windows[index]};
  write_kv(context, layout, cache.layer(index), act.seqs, k, qkv_width(), v, qkv_width());
  paged_attention(context, layout, cache.layer(index), act.seqs, params, qkv, qkv_width(), attended,
                  q_width());
  matmul(context, layer.o.matrix, attended, q_width(), rows, normed, hidden, layer.o.bias_data());
  add_in_place(context, residual, normed, rows * hidden);
}

void Decoder::Impl::feed_forward(KernelContext& context, const LayerWeights& layer, size_t rows) {
  const size_t hidden = config.hidden_size;
  const size_t width = config.ffn_size;
  float* residual = act.residual.as<float>();
  float* normed = rows_of(act.normed, rows, hidden);
  float* gate_up = rows_of(act.gate_up, rows, 2 * width);
  float* ffn = rows_of(act.ffn, rows, width);
  rms_norm(context, residual, hidden, layer.ffn_norm.as<float>(), eps(), normed, hidden, rows, hidden);
  matmul(context, layer.gate_up.matrix, normed, hidden, rows, gate_up, 2 * width, layer.gate_up.bias_data());
  swiglu(context, gate_up, ffn, rows, width);
  matmul(context, layer.down.matrix, ffn, width, rows, normed, hidden, layer.down.bias_data());
  add_in_place(context, residual, normed, rows * hidden);
}

std::span<const float> Decoder::Impl::head(KernelContext& context) {
  const size_t rows = act.logit_rows.size();
  if (rows == 0) return {};
  const size_t hidden = config.hidden_size;
  float* residual = act.residual.as<float>();
  // Rows only ever move down, so they can be gathered in place.
  for (size_t i = 0; i < rows; ++i) {
    if (act.logit_rows[i] == i) continue;
    std::copy_n(residual + act.logit_rows[i] * hidden, hidden, residual + i * hidden);
  }
  rms_norm(context, residual, hidden, weights.final_norm.as<float>(), eps(), residual, hidden, rows, hidden);
  float* logits = rows_of(act.logits, rows, config.vocab_size);
  matmul(context, weights.head, residual, hidden, rows, logits, config.vocab_size);
  return {logits, rows * config.vocab_size};
}

Decoder::Decoder() = default;
Decoder::~Decoder() = default;

std::unique_ptr<Decoder> Decoder::load(const std::filesystem::path& model, std::optional<DType> compute,
                                       KernelContext& context) {
  ModelConfig config = load_model_config(model);
  const DType dtype = compute.value_or(config.dtype);
  if (!is_float(dtype)) throw Error(fmt::format("compute type {} is not supported", dtype_name(dtype)));
  ModelWeights weights = load_weights(model, config, dtype, context);
  std::unique_ptr<Decoder> decoder(new Decoder());
  RopeTable table(config.rope, config.head_dim, config.max_positions);
  decoder->impl_.reset(new Impl{std::move(config), dtype, std::move(weights), std::move(table), {}});
  return decoder;
}

const ModelConfig& Decoder::config() const { return impl_->config; }
ModelShape Decoder::shape() const { return model_shape(impl_->config, impl_->compute); }
DType Decoder::compute_dtype() const { return impl_->compute; }

std::span<const float> Decoder::forward(KernelContext& context, KvCache& cache,
                                        std::span<const TokenId> tokens, std::span<const DecoderSeq> seqs) {
  Impl& impl = *impl_;
  impl.check(cache, tokens, seqs);
  if (tokens.empty()) return {};
  const float* cos_sin = impl.rope_table.at_least(impl.lay_out(seqs));
  const size_t rows = tokens.size();
  embed(context, impl.weights.embedding.view(), tokens,
        rows_of(impl.act.residual, rows, impl.config.hidden_size));
  for (uint32_t layer = 0; layer < impl.config.num_layers; ++layer) {
    impl.attention(context, cache, layer, cos_sin, rows);
    impl.feed_forward(context, impl.weights.layers[layer], rows);
  }
  return impl.head(context);
}

}  // namespace quire
