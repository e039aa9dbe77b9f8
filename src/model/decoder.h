#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>

#include "base/ids.h"
#include "base/model_shape.h"
#include "kernels/context.h"
#include "model/config.h"
#include "tensor/buffer.h"

namespace quire {

/// One sequence's part of a batch.
struct DecoderSeq {
  uint32_t num_tokens = 0;
  uint32_t first_position = 0;
  std::span<const BlockId> block_table;  // covers positions [0, first_position + num_tokens)
  uint32_t logit_rows = 0;               // the last so many tokens give logits: 0, 1 or num_tokens
};

/// The K/V of all layers: per layer num_blocks contiguous blocks (layout: kernels/attention.h).
class KvCache {
 public:
  KvCache(const ModelConfig& config, DType dtype, uint32_t num_blocks, uint32_t block_size);
  DType dtype() const { return dtype_; }
  uint32_t num_blocks() const { return num_blocks_; }
  uint32_t block_size() const { return block_size_; }
  size_t block_bytes() const { return block_bytes_; }  // of one layer
  std::byte* layer(uint32_t index) { return data_.data() + size_t{index} * num_blocks_ * block_bytes_; }
  /// In all layers.
  void copy_block(BlockId from, BlockId to);

 private:
  DType dtype_;
  uint32_t num_blocks_;
  uint32_t block_size_;
  size_t block_bytes_;
  uint32_t num_layers_;
  Buffer data_;
};

/// A decoder-only transformer. The weights are packed at load and immutable; `forward` is not thread-safe (it
/// uses the context's threads itself).
class Decoder {
 public:
  /// Loads `model`, a directory or a GGUF file. `compute`: f32, f16 or bf16; nullopt is the checkpoint's
  /// (bf16 of quantized ones). `max_positions`: no sequence will be longer, and longrope chooses its factors
  /// by it; 0, or more than the model has, is the model's. Throws Error naming file and tensor.
  static std::unique_ptr<Decoder> load(const std::filesystem::path& model, std::optional<DType> compute,
                                       KernelContext& context, uint32_t max_positions = 0);
  ~Decoder();

  const ModelConfig& config() const;
  ModelShape shape() const;
  DType compute_dtype() const;

  /// Computes `tokens` (those of seqs[0], then of seqs[1], ...), writes their K/V into `cache` and returns
  /// the logits asked for, [rows][vocab] f32, rows in the order of the tokens; valid until the next call. A
  /// row's logits do not depend on the batch, the chunking or the threads.
  std::span<const float> forward(KernelContext& context, KvCache& cache, std::span<const TokenId> tokens,
                                 std::span<const DecoderSeq> seqs);

 private:
  Decoder();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire
