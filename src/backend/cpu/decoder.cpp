#include "backend/cpu/decoder.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "backend/cpu/feed_forward.h"
#include "backend/cpu/inspect.h"
#include "backend/cpu/weights.h"
#include "base/error.h"
#include "base/log.h"
#include "formats/model_config.h"
#include "kernels/attention.h"
#include "kernels/elementwise.h"
#include "kernels/matmul.h"
#include "model/rope_table.h"

namespace quire::backend::cpu {
namespace {

/// Activations of a step, f32, grown when a step needs more rows and reused after.
struct Activations {
  Buffer residual;  // [rows, hidden]
  Buffer normed;    // [rows, hidden]: what goes into attention or feed-forward
  Buffer added;     // [rows, hidden]: what comes out of them
  Buffer qkv;       // [rows, q + 2 kv]
  Buffer attended;  // [rows, q]
  Buffer logits;    // [logit rows, vocab]
  std::vector<uint32_t> positions;
  std::vector<uint32_t> logit_rows;
  std::vector<std::vector<kernels::AttentionSeq>> seqs;  // by K/V group
};

float* rows_of(Buffer& buffer, size_t rows, size_t width) {
  buffer.reserve(rows * width * sizeof(float));
  return buffer.as<float>();
}

}  // namespace

struct Decoder::Impl {
  model::ModelConfig config;
  DType compute = DType::kF32;
  ModelWeights weights;
  model::RopeTable rope_table = {};
  model::RopeTable local_rope_table = {};
  uint32_t max_positions = 0;
  float embedding_scale = 1.0F;
  float attention_scale = 1.0F;
  Activations act = {};
  FeedForwardPass feed_forward = {};

  size_t q_width() const { return size_t{config.num_heads} * config.head_dim; }
  size_t kv_width() const { return size_t{config.num_kv_heads} * config.head_dim; }
  size_t qkv_width() const { return q_width() + 2 * kv_width(); }
  float eps() const { return static_cast<float>(config.rms_norm_eps); }

  static bool covered(const KvCache& cache, const DecoderSeq& seq);
  void check(const KvCache& cache, std::span<const TokenId> tokens, std::span<const DecoderSeq> seqs) const;
  uint32_t lay_out(std::span<const DecoderSeq> seqs, uint32_t num_groups);
  const float* normalized(kernels::KernelContext& context, const Buffer& weight, size_t rows);
  void add(kernels::KernelContext& context, const Buffer& post_norm, size_t rows);
  void normalize_heads(kernels::KernelContext& context, const LayerWeights& layer, float* qkv,
                       size_t rows) const;
  void normalize_qk(kernels::KernelContext& context, const LayerWeights& layer, float* qkv,
                    size_t rows) const;
  void rotate(kernels::KernelContext& context, uint32_t layer, float* qkv, size_t rows, uint32_t positions);
  void attention(kernels::KernelContext& context, KvCache& cache, uint32_t layer, size_t rows,
                 uint32_t positions);
  const float* final_norm(kernels::KernelContext& context, std::span<const uint32_t> rows);
  std::span<const float> head(kernels::KernelContext& context, std::span<const uint32_t> rows);
};

/// Every block that the sequence reads or writes is there.
bool Decoder::Impl::covered(const KvCache& cache, const DecoderSeq& seq) {
  const uint64_t end = uint64_t{seq.first_position} + seq.num_tokens;
  if (seq.block_tables.size() != cache.num_groups()) return false;
  for (uint32_t group = 0; group < cache.num_groups(); ++group) {
    const std::vector<BlockId>& table = seq.block_tables[group];
    if (end > table.size() * uint64_t{cache.block_size()}) return false;
    const uint32_t window = cache.groups().windows[group];
    const bool behind = window != 0 && seq.first_position >= window;
    const uint32_t first = behind ? (seq.first_position - window + 1) / cache.block_size() : 0;
    const auto known = [&](BlockId block) { return block < cache.num_blocks(); };
    if (!std::all_of(table.begin() + first, table.end(), known)) return false;
  }
  return true;
}

/// The memory that a step touches follows from these numbers, so that a mistake of the caller's ends here.
void Decoder::Impl::check(const KvCache& cache, std::span<const TokenId> tokens,
                          std::span<const DecoderSeq> seqs) const {
  size_t rows = 0;
  for (const DecoderSeq& seq : seqs) {
    const uint64_t end = uint64_t{seq.first_position} + seq.num_tokens;
    if (end > max_positions || !covered(cache, seq) || seq.logit_rows > seq.num_tokens) {
      throw Error(
          fmt::format("decoder: a sequence of {} tokens at position {} does not fit its blocks or the "
                      "model's {} positions",
                      seq.num_tokens, seq.first_position, max_positions));
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
uint32_t Decoder::Impl::lay_out(std::span<const DecoderSeq> seqs, uint32_t num_groups) {
  act.positions.clear();
  act.logit_rows.clear();
  act.seqs.resize(num_groups);
  for (auto& of_group : act.seqs) of_group.clear();
  uint32_t end = 0;
  for (const DecoderSeq& seq : seqs) {
    const auto first_row = static_cast<uint32_t>(act.positions.size());
    for (uint32_t group = 0; group < num_groups; ++group) {
      act.seqs[group].push_back({first_row, seq.num_tokens, seq.first_position, seq.block_tables[group]});
    }
    for (uint32_t i = 0; i < seq.num_tokens; ++i) {
      act.positions.push_back(seq.first_position + i);
      if (i + seq.logit_rows >= seq.num_tokens) act.logit_rows.push_back(first_row + i);
    }
    end = std::max(end, seq.first_position + seq.num_tokens);
  }
  return end;
}

/// The residual under a norm, or as it is where the model has no norm there.
const float* Decoder::Impl::normalized(kernels::KernelContext& context, const Buffer& weight, size_t rows) {
  const size_t hidden = config.hidden_size;
  const float* residual = act.residual.as<float>();
  if (weight.size() == 0) return residual;
  float* normed = rows_of(act.normed, rows, hidden);
  kernels::rms_norm(context, residual, hidden, weight.as<float>(), eps(), normed, hidden, rows, hidden);
  return normed;
}

/// act.added to the residual, through the norm if there is one.
void Decoder::Impl::add(kernels::KernelContext& context, const Buffer& post_norm, size_t rows) {
  const size_t hidden = config.hidden_size;
  auto* added = act.added.as<float>();
  if (post_norm.size() != 0) {
    kernels::rms_norm(context, added, hidden, post_norm.as<float>(), eps(), added, hidden, rows, hidden);
  }
  kernels::add_in_place(context, act.residual.as<float>(), added, rows * hidden,
                        static_cast<float>(config.residual_scale));
}

/// RMSNorm of each head of q and of k. A head is a row of its own, so it does not matter which way the rows
/// are walked: the one with fewer calls.
void Decoder::Impl::normalize_heads(kernels::KernelContext& context, const LayerWeights& layer, float* qkv,
                                    size_t rows) const {
  const size_t dim = config.head_dim;
  const auto normalize = [&](float* x, uint32_t heads, const float* weight) {
    if (rows < heads) {
      for (size_t row = 0; row < rows; ++row) {
        float* at = x + row * qkv_width();
        kernels::rms_norm(context, at, dim, weight, eps(), at, dim, heads, dim);
      }
    } else {
      for (uint32_t head = 0; head < heads; ++head) {
        float* at = x + head * dim;
        kernels::rms_norm(context, at, qkv_width(), weight, eps(), at, qkv_width(), rows, dim);
      }
    }
  };
  normalize(qkv, config.num_heads, layer.q_norm.as<float>());
  normalize(qkv + q_width(), config.num_kv_heads, layer.k_norm.as<float>());
}

void Decoder::Impl::normalize_qk(kernels::KernelContext& context, const LayerWeights& layer, float* qkv,
                                 size_t rows) const {
  if (config.qk_norm == model::QkNorm::kPerHead) normalize_heads(context, layer, qkv, rows);
  if (config.qk_norm != model::QkNorm::kWhole) return;
  float* k = qkv + q_width();
  kernels::rms_norm(context, qkv, qkv_width(), layer.q_norm.as<float>(), eps(), qkv, qkv_width(), rows,
                    q_width());
  kernels::rms_norm(context, k, qkv_width(), layer.k_norm.as<float>(), eps(), k, qkv_width(), rows,
                    kv_width());
}

void Decoder::Impl::rotate(kernels::KernelContext& context, uint32_t index, float* qkv, size_t rows,
                           uint32_t positions) {
  const model::LayerRope which = config.layer_rope(index);
  if (which == model::LayerRope::kNone) return;
  model::RopeTable& table = which == model::LayerRope::kLocal ? local_rope_table : rope_table;
  const model::RopeConfig& rope_config = which == model::LayerRope::kLocal ? *config.local_rope : config.rope;
  // Heads of q and of k lie side by side.
  kernels::rope(context, qkv, qkv_width(), rows, config.num_heads + config.num_kv_heads, config.head_dim,
                config.rotary(rope_config), table.at_least(positions), act.positions.data());
}

void Decoder::Impl::attention(kernels::KernelContext& context, KvCache& cache, uint32_t index, size_t rows,
                              uint32_t positions) {
  const LayerWeights& layer = weights.layers[index];
  const size_t hidden = config.hidden_size;
  const float* x = normalized(context, layer.attention_norm, rows);
  float* qkv = rows_of(act.qkv, rows, qkv_width());
  float* attended = rows_of(act.attended, rows, q_width());
  matmul(context, layer.qkv, x, hidden, rows, qkv, qkv_width());
  float* k = qkv + q_width();
  float* v = k + kv_width();
  normalize_qk(context, layer, qkv, rows);
  rotate(context, index, qkv, rows, positions);

  const kernels::KvLayout layout{cache.dtype(), cache.block_size(), config.num_kv_heads, config.head_dim};
  const kernels::AttentionParams params{config.num_heads, attention_scale, config.windows[index],
                                        static_cast<float>(config.attention_soft_cap)};
  const std::vector<kernels::AttentionSeq>& seqs = act.seqs[cache.groups().of_layer[index]];
  kernels::write_kv(context, layout, cache.layer(index), seqs, k, qkv_width(), v, qkv_width());
  kernels::paged_attention(context, layout, cache.layer(index), seqs, params, qkv, qkv_width(), attended,
                           q_width());
  matmul(context, layer.o, attended, q_width(), rows, rows_of(act.added, rows, hidden), hidden);
  add(context, layer.post_attention_norm, rows);
}

/// The residual of these rows under the final norm, in act.normed.
const float* Decoder::Impl::final_norm(kernels::KernelContext& context, std::span<const uint32_t> places) {
  const size_t rows = places.size();
  const size_t hidden = config.hidden_size;
  const float* from = act.residual.as<float>() + places.front() * hidden;
  float* normed = rows_of(act.normed, rows, hidden);
  if (places.back() - places.front() + 1 != rows) {  // not consecutive: gathered first
    for (size_t i = 0; i < rows; ++i) {
      std::copy_n(act.residual.as<float>() + places[i] * hidden, hidden, normed + i * hidden);
    }
    from = normed;
  }
  kernels::rms_norm(context, from, hidden, weights.final_norm.as<float>(), eps(), normed, hidden, rows,
                    hidden);
  return normed;
}

std::span<const float> Decoder::Impl::head(kernels::KernelContext& context,
                                           std::span<const uint32_t> places) {
  const size_t rows = places.size();
  if (rows == 0) return {};
  const size_t hidden = config.hidden_size;
  const float* normed = final_norm(context, places);
  float* logits = rows_of(act.logits, rows, config.vocab_size);
  kernels::matmul(context, weights.head, normed, hidden, rows, logits, config.vocab_size);
  const size_t count = rows * config.vocab_size;
  if (config.logit_scale != 1.0) {
    kernels::scale_in_place(context, logits, count, static_cast<float>(config.logit_scale));
  }
  if (config.logit_soft_cap != 0.0) {
    kernels::soft_cap(context, logits, count, static_cast<float>(config.logit_soft_cap));
  }
  return {logits, rows * config.vocab_size};
}

Decoder::Decoder() = default;
Decoder::~Decoder() = default;

std::unique_ptr<Decoder> Decoder::load(const std::filesystem::path& model, const DecoderOptions& options,
                                       kernels::KernelContext& context) {
  return load(model, formats::load_model_config(model), options, context);
}

std::unique_ptr<Decoder> Decoder::load(const std::filesystem::path& model, model::ModelConfig loaded,
                                       const DecoderOptions& options, kernels::KernelContext& context) {
  const DType dtype = options.compute.value_or(loaded.dtype);
  if (!is_float(dtype)) throw Error(fmt::format("compute type {} is not supported", dtype_name(dtype)));
  const WeightSetting setting = {.compute = dtype,
                                 .format = options.quantization.value_or(weight_format_of(dtype)),
                                 .own_blocks = options.own_blocks && !options.quantization};
  ModelWeights weights = load_weights(model, loaded, setting, context, options.pack_cache, options.access);
  std::unique_ptr<Decoder> decoder(new Decoder());
  decoder->impl_.reset(
      new Impl{.config = std::move(loaded), .compute = dtype, .weights = std::move(weights)});
  Impl& impl = *decoder->impl_;
  const model::ModelConfig& config = impl.config;
  impl.max_positions = options.max_positions == 0 ? config.max_positions
                                                  : std::min(options.max_positions, config.max_positions);
  impl.rope_table = model::RopeTable(config.rope, config.rotary(config.rope), impl.max_positions);
  if (config.local_rope) {
    impl.local_rope_table =
        model::RopeTable(*config.local_rope, config.rotary(*config.local_rope), impl.max_positions);
  }
  if (config.rope.scaling == model::RopeScaling::kLongrope) {
    log_info(fmt::format("longrope: {} factors, for sequences of up to {} tokens (original context: {})",
                         impl.max_positions > config.rope.original_max_positions ? "long" : "short",
                         impl.max_positions, config.rope.original_max_positions));
  }
  impl.attention_scale = static_cast<float>(config.attention_scale != 0.0
                                                ? config.attention_scale
                                                : 1.0 / std::sqrt(static_cast<double>(config.head_dim)));
  impl.embedding_scale = static_cast<float>(config.embedding_scale);
  if (config.round_embedding_scale && impl.compute == DType::kBF16) {
    impl.embedding_scale = bf16_to_f32(f32_to_bf16(impl.embedding_scale));
  } else if (config.round_embedding_scale && impl.compute == DType::kF16) {
    impl.embedding_scale = f16_to_f32(f32_to_f16(impl.embedding_scale));
  }
  return decoder;
}

const model::ModelConfig& Decoder::config() const { return impl_->config; }
ModelShape Decoder::shape() const { return model_shape(impl_->config, impl_->compute); }
uint64_t Decoder::mapped_weight_bytes() const {
  const auto& kept = impl_->weights.kept;
  return kept == nullptr ? 0 : kept->mapped_bytes();
}

DType Decoder::compute_dtype() const { return impl_->compute; }
std::string Decoder::weight_formats() const { return formats_in_use(impl_->weights); }

void Decoder::compute(kernels::KernelContext& context, KvCache& cache, std::span<const TokenId> tokens,
                      std::span<const DecoderSeq> seqs) {
  Impl& impl = *impl_;
  impl.act.logit_rows.clear();
  impl.check(cache, tokens, seqs);
  if (tokens.empty()) return;
  const uint32_t positions = impl.lay_out(seqs, cache.num_groups());
  const size_t rows = tokens.size();
  const size_t hidden = impl.config.hidden_size;
  float* residual = rows_of(impl.act.residual, rows, hidden);
  kernels::embed(context, impl.weights.embedding.view(), tokens, residual);
  if (impl.embedding_scale != 1.0F)
    kernels::scale_in_place(context, residual, rows * hidden, impl.embedding_scale);
  for (uint32_t index = 0; index < impl.config.num_layers; ++index) {
    const LayerWeights& layer = impl.weights.layers[index];
    impl.attention(context, cache, index, rows, positions);
    const float* x = impl.normalized(context, layer.ffn_norm, rows);
    impl.feed_forward.run(context, impl.config, layer, x, rows, rows_of(impl.act.added, rows, hidden));
    impl.add(context, layer.post_ffn_norm, rows);
  }
}

std::span<const float> Decoder::logits(kernels::KernelContext& context, std::span<const uint32_t> rows) {
  return impl_->head(context, rows);
}

std::span<const float> Decoder::hidden(kernels::KernelContext& context, std::span<const uint32_t> rows) {
  if (rows.empty()) return {};
  return {impl_->final_norm(context, rows), rows.size() * impl_->config.hidden_size};
}

std::span<const float> Decoder::forward(kernels::KernelContext& context, KvCache& cache,
                                        std::span<const TokenId> tokens, std::span<const DecoderSeq> seqs) {
  compute(context, cache, tokens, seqs);
  return impl_->head(context, impl_->act.logit_rows);
}

}  // namespace quire::backend::cpu
