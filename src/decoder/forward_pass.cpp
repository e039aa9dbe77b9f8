#include "decoder/forward_pass.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "base/error.h"
#include "base/log.h"

namespace quire::decoder {
namespace {

/// Some families multiply in the number type of their weights.
float embedding_scale_of(const model::ModelConfig& config, DType compute) {
  const auto scale = static_cast<float>(config.embedding_scale);
  if (config.round_embedding_scale && compute == DType::kBF16) return bf16_to_f32(f32_to_bf16(scale));
  if (config.round_embedding_scale && compute == DType::kF16) return f16_to_f32(f32_to_f16(scale));
  return scale;
}

float attention_scale_of(const model::ModelConfig& config) {
  const double scale = config.attention_scale != 0.0 ? config.attention_scale
                                                     : 1.0 / std::sqrt(static_cast<double>(config.head_dim));
  return static_cast<float>(scale);
}

/// Every block that the sequence reads or writes is there.
bool covered(const KvPool& pool, const BatchSeq& seq) {
  const uint64_t end = uint64_t{seq.first_position} + seq.num_tokens;
  const std::vector<uint32_t>& windows = pool.groups.windows;
  if (seq.block_tables.size() != windows.size()) return false;
  for (uint32_t group = 0; group < windows.size(); ++group) {
    const std::vector<BlockId>& table = seq.block_tables[group];
    if (end > table.size() * uint64_t{pool.block_size}) return false;
    const uint32_t window = windows[group];
    const bool behind = window != 0 && seq.first_position >= window;
    const uint32_t first = behind ? (seq.first_position - window + 1) / pool.block_size : 0;
    const auto known = [&](BlockId block) { return block < pool.num_blocks; };
    if (!std::all_of(table.begin() + first, table.end(), known)) return false;
  }
  return true;
}

}  // namespace

ForwardPass::ForwardPass(const model::ModelConfig& config, DType compute, uint32_t max_positions)
    : config_(config),
      max_positions_(max_positions),
      embedding_scale_(embedding_scale_of(config, compute)),
      attention_scale_(attention_scale_of(config)),
      main_rope_(config.rope, config.rotary(config.rope), max_positions) {
  if (config.local_rope) {
    local_rope_ = model::RopeTable(*config.local_rope, config.rotary(*config.local_rope), max_positions);
  }
  if (config.rope.scaling == model::RopeScaling::kLongrope) {
    log_info(fmt::format("longrope: {} factors, for sequences of up to {} tokens (original context: {})",
                         max_positions > config.rope.original_max_positions ? "long" : "short", max_positions,
                         config.rope.original_max_positions));
  }
}

/// The memory that a step touches follows from these numbers, so that a mistake of the caller's ends here.
void ForwardPass::check(const KvPool& pool, std::span<const TokenId> tokens,
                        std::span<const BatchSeq> seqs) const {
  size_t rows = 0;
  for (const BatchSeq& seq : seqs) {
    const uint64_t end = uint64_t{seq.first_position} + seq.num_tokens;
    if (end > max_positions_ || !covered(pool, seq) || seq.logit_rows > seq.num_tokens) {
      throw Error(
          fmt::format("decoder: a sequence of {} tokens at position {} does not fit its blocks or the "
                      "model's {} positions",
                      seq.num_tokens, seq.first_position, max_positions_));
    }
    rows += seq.num_tokens;
  }
  if (rows != tokens.size()) {
    throw Error(fmt::format("decoder: {} tokens for {} places", tokens.size(), rows));
  }
  for (const TokenId token : tokens) {
    if (token < 0 || static_cast<uint32_t>(token) >= config_.vocab_size) {
      throw Error(fmt::format("decoder: token {} is not in the vocabulary of {}", token, config_.vocab_size));
    }
  }
}

/// Fills positions and logit rows. Returns how many positions RoPE must cover.
uint32_t ForwardPass::lay_out(std::span<const BatchSeq> seqs) {
  positions_.clear();
  logit_rows_.clear();
  uint32_t end = 0;
  for (const BatchSeq& seq : seqs) {
    for (uint32_t i = 0; i < seq.num_tokens; ++i) {
      if (i + seq.logit_rows >= seq.num_tokens)
        logit_rows_.push_back(static_cast<uint32_t>(positions_.size()));
      positions_.push_back(seq.first_position + i);
    }
    end = std::max(end, seq.first_position + seq.num_tokens);
  }
  return end;
}

void ForwardPass::compute(Ops& ops, const KvPool& pool, std::span<const TokenId> tokens,
                          std::span<const BatchSeq> seqs) {
  logit_rows_.clear();
  check(pool, tokens, seqs);
  if (tokens.empty()) return;
  const uint32_t positions = lay_out(seqs);
  ops.begin({.tokens = tokens, .positions = positions_, .seqs = seqs});
  ops.compute_layers([&] { layers(ops, pool, positions); });
}

void ForwardPass::layers(Ops& ops, const KvPool& pool, uint32_t positions) {
  ops.embed(embedding_scale_);
  if (ops.has(Norm::kAttention, 0)) ops.norm(Norm::kAttention, 0, Rows::kResidual, Rows::kNormed);
  for (uint32_t layer = 0; layer < config_.num_layers; ++layer) {
    attention(ops, pool, layer, positions);
    post_norm(ops, Norm::kPostAttention, layer);
    add_and_norm(ops, Norm::kFeedForward, layer);
    ops.feed_forward(layer, ops.has(Norm::kFeedForward, layer) ? Rows::kNormed : Rows::kResidual);
    post_norm(ops, Norm::kPostFeedForward, layer);
    add_and_norm(ops, Norm::kAttention, layer + 1);
  }
}

/// From the norm before it to its projection, in kAdded.
void ForwardPass::attention(Ops& ops, const KvPool& pool, uint32_t layer, uint32_t positions) {
  ops.project_qkv(layer, ops.has(Norm::kAttention, layer) ? Rows::kNormed : Rows::kResidual);
  if (config_.qk_norm != model::QkNorm::kNone) ops.norm_qk(layer);
  rotate(ops, layer, positions);
  ops.attend(layer, pool.groups.of_layer[layer],
             {.scale = attention_scale_,
              .window = config_.windows[layer],
              .soft_cap = static_cast<float>(config_.attention_soft_cap)});
  ops.project_out(layer);
}

void ForwardPass::rotate(Ops& ops, uint32_t layer, uint32_t positions) {
  const model::LayerRope kind = config_.layer_rope(layer);
  if (kind == model::LayerRope::kNone) return;
  const bool local = kind == model::LayerRope::kLocal;
  ops.rotate({.kind = kind,
              .rotary = config_.rotary(local ? *config_.local_rope : config_.rope),
              .positions = positions,
              .cos_sin = (local ? local_rope_ : main_rope_).at_least(positions)});
}

void ForwardPass::give_rotations(Ops& ops) {
  for (uint32_t layer = 0; layer < config_.num_layers; ++layer) rotate(ops, layer, max_positions_);
}

/// What attention or feed-forward gives, through the norm behind it if there is one.
void ForwardPass::post_norm(Ops& ops, Norm norm, uint32_t layer) const {
  if (ops.has(norm, layer)) ops.norm(norm, layer, Rows::kAdded, Rows::kAdded);
}

/// kAdded to the residual, and what follows of it, if that has a norm. The final norm is not one of these: it
/// is taken only of the rows that are asked for.
void ForwardPass::add_and_norm(Ops& ops, Norm then, uint32_t layer) const {
  const auto factor = static_cast<float>(config_.residual_scale);
  if (layer < config_.num_layers && ops.has(then, layer)) {
    ops.add_and_norm(factor, then, layer);
  } else {
    ops.add(factor);
  }
}

std::span<const float> ForwardPass::hidden(Ops& ops, std::span<const uint32_t> rows) const {
  if (rows.empty()) return {};
  return ops.hidden(rows);
}

std::span<const float> ForwardPass::logits(Ops& ops, std::span<const uint32_t> rows) const {
  if (rows.empty()) return {};
  return ops.logits(rows, static_cast<float>(config_.logit_scale),
                    static_cast<float>(config_.logit_soft_cap));
}

}  // namespace quire::decoder
