#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/cpu/feed_forward.h"
#include "backend/cpu/kv_cache.h"
#include "backend/cpu/weights.h"
#include "decoder/ops.h"
#include "kernels/attention.h"
#include "kernels/context.h"
#include "model/config.h"
#include "tensor/buffer.h"

namespace quire::backend::cpu {

/// The operations of a forward pass on this machine's processor, by the kernels of kernels/. Activations are
/// f32; their memory grows when a step needs more rows than were reserved, and is reused after.
class CpuOps final : public decoder::Ops {
 public:
  /// Both must outlive it.
  CpuOps(const model::ModelConfig& config, const ModelWeights& weights)
      : config_(config), weights_(weights) {}

  /// What all calls use until the next use_*(). A cache is needed from begin() to the last attend().
  void use_context(kernels::KernelContext& context) { context_ = &context; }
  void use_cache(KvCache& cache) { cache_ = &cache; }
  /// Takes the memory of batches of up to so many tokens, and of the logits of so many rows at a time. That
  /// of the activations is found and cleared with the context's threads; so no step has to wait for it.
  void reserve(size_t tokens, size_t logit_rows);

  void begin(const decoder::Batch& batch) override;
  bool has(decoder::Norm norm, uint32_t layer) const override { return weight_of(norm, layer).size() != 0; }
  void norm(decoder::Norm norm, uint32_t layer, decoder::Rows from, decoder::Rows to) override;
  void add(float factor) override;
  void embed(float scale) override;
  void project_qkv(uint32_t layer, decoder::Rows from) override;
  void norm_qk(uint32_t layer) override;
  void rotate(const decoder::Rotation& rotation) override;
  void attend(uint32_t layer, uint32_t group, const decoder::AttentionScores& scores) override;
  void project_out(uint32_t layer) override;
  void feed_forward(uint32_t layer, decoder::Rows from) override;
  std::span<const float> hidden(std::span<const uint32_t> rows) override;
  std::span<const float> logits(std::span<const uint32_t> rows, float scale, float cap) override;

 private:
  size_t q_width() const { return size_t{config_.num_heads} * config_.head_dim; }
  size_t kv_width() const { return size_t{config_.num_kv_heads} * config_.head_dim; }
  size_t qkv_width() const { return q_width() + 2 * kv_width(); }
  size_t width_of(decoder::Rows which) const;
  size_t scratch_bytes(size_t tokens, size_t logit_rows) const;
  float eps() const { return static_cast<float>(config_.rms_norm_eps); }
  const Buffer& weight_of(decoder::Norm norm, uint32_t layer) const;
  float* at(decoder::Rows which);
  void norm_heads(float* x, uint32_t heads, const Buffer& weight);

  const model::ModelConfig& config_;
  const ModelWeights& weights_;
  kernels::KernelContext* context_ = nullptr;
  KvCache* cache_ = nullptr;
  decoder::Batch batch_;
  std::vector<std::vector<kernels::AttentionSeq>> seqs_;  // of the batch, by K/V group
  Buffer activations_[5];                                 // by Rows
  Buffer logits_;                                         // [rows of logits(), vocab]
  FeedForwardPass feed_forward_;
};

}  // namespace quire::backend::cpu
