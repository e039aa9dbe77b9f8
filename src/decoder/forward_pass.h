#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/ids.h"
#include "decoder/batch.h"
#include "decoder/ops.h"
#include "model/config.h"
#include "model/rope_table.h"
#include "tensor/dtype.h"

namespace quire::decoder {

/// The transformer of all model families, as a sequence of operations that any device carries out. What
/// distinguishes the families is in the ModelConfig. Not thread-safe.
class ForwardPass {
 public:
  /// `config` must outlive it. `compute`: the number type of the weights, to which some families round the
  /// factor of their embeddings. `max_positions`: the longest sequence.
  ForwardPass(const model::ModelConfig& config, DType compute, uint32_t max_positions);

  /// Gives the operations all rotations of the longest sequence, for a device that should have them before
  /// the first step.
  void give_rotations(Ops& ops);
  /// Computes `tokens` and writes their K/V into the blocks of `seqs`. Throws Error if a sequence does not
  /// fit its blocks, the pool or the model, or if a token is not in the vocabulary.
  void compute(Ops& ops, const KvPool& pool, std::span<const TokenId> tokens, std::span<const BatchSeq> seqs);

  /// The rows that BatchSeq::logit_rows asked for in the last compute().
  std::span<const uint32_t> logit_rows() const { return logit_rows_; }
  /// Ops::hidden and Ops::logits of rows of the last compute(); empty if there are no `rows`.
  std::span<const float> hidden(Ops& ops, std::span<const uint32_t> rows) const;
  std::span<const float> logits(Ops& ops, std::span<const uint32_t> rows) const;

 private:
  void check(const KvPool& pool, std::span<const TokenId> tokens, std::span<const BatchSeq> seqs) const;
  uint32_t lay_out(std::span<const BatchSeq> seqs);
  void layers(Ops& ops, const KvPool& pool, uint32_t positions);
  void attention(Ops& ops, const KvPool& pool, uint32_t layer, uint32_t positions);
  void rotate(Ops& ops, uint32_t layer, uint32_t positions);
  void post_norm(Ops& ops, Norm norm, uint32_t layer) const;
  void add_and_norm(Ops& ops, Norm then, uint32_t layer) const;

  const model::ModelConfig& config_;
  uint32_t max_positions_;
  float embedding_scale_;
  float attention_scale_;
  model::RopeTable main_rope_;
  model::RopeTable local_rope_;
  std::vector<uint32_t> positions_;
  std::vector<uint32_t> logit_rows_;
};

}  // namespace quire::decoder
