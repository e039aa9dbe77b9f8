#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/model_shape.h"
#include "base/ids.h"
#include "formats/mapped_file.h"
#include "kernels/context.h"
#include "model/config.h"
#include "model/kv_groups.h"
#include "tensor/buffer.h"
#include "tensor/weight_format.h"

namespace quire::backend::cpu {

/// One sequence's part of a batch.
struct DecoderSeq {
  uint32_t num_tokens = 0;
  uint32_t first_position = 0;
  /// One per K/V group (KvCache::groups), each with the entries for [0, first_position + num_tokens). Entries
  /// behind a group's window are not read.
  std::span<const std::vector<BlockId>> block_tables;
  uint32_t logit_rows = 0;  // for forward(): how many tokens, counted from the last, give logits
};

/// The K/V of all layers in one pool of blocks; any block can serve any K/V group. A block has one part per
/// layer of a group. Parts with the same place in their groups form one array of num_blocks contiguous parts
/// (layout: kernels/attention.h).
class KvCache {
 public:
  KvCache(const model::ModelConfig& config, DType dtype, uint32_t num_blocks, uint32_t block_size);
  DType dtype() const { return dtype_; }
  uint32_t num_blocks() const { return num_blocks_; }
  uint32_t block_size() const { return block_size_; }
  size_t block_bytes() const { return block_bytes_; }  // of one layer
  const model::KvGroups& groups() const { return groups_; }
  uint32_t num_groups() const { return static_cast<uint32_t>(groups_.windows.size()); }
  /// The array of the parts that belong to this layer in the blocks of its group.
  std::byte* layer(uint32_t index) { return parts(groups_.place[index]); }
  /// Copies block `from` of `source` to block `to`, for all layers of its group. Both caches have the same
  /// model and type.
  void copy_block(const KvCache& source, BlockId from, BlockId to);
  /// Reads or writes all of a block, to keep it elsewhere; `bytes` has whole_block_bytes().
  size_t whole_block_bytes() const { return groups_.layers_per_block * block_bytes_; }
  void read_block(BlockId block, std::span<std::byte> bytes) const;
  void write_block(BlockId block, std::span<const std::byte> bytes);

 private:
  std::byte* parts(uint32_t place) { return data_.data() + size_t{place} * num_blocks_ * block_bytes_; }
  const std::byte* parts(uint32_t place) const {
    return data_.data() + size_t{place} * num_blocks_ * block_bytes_;
  }

  DType dtype_;
  uint32_t num_blocks_;
  uint32_t block_size_;
  size_t block_bytes_;
  model::KvGroups groups_;
  Buffer data_;
};

/// The number formats and memory of a decoder.
struct DecoderOptions {
  std::optional<DType> compute =
      {};  // f32, f16 or bf16; nullopt: that of the checkpoint (bf16 for quantized ones)
  std::optional<WeightFormat> quantization =
      {};  // int8 or int4, for the matrices that load_weights quantizes
  /// Without `quantization`: whether matrices that a GGUF file has in a quantized WeightFormat stay in it,
  /// with int8 activations; otherwise they are expanded to `compute`.
  bool own_blocks = true;
  /// The longest sequence, by which longrope chooses its factors; 0, or more than the model has: the model's
  /// own limit.
  uint32_t max_positions = 0;
  /// The folder for packed weights (backend/cpu/pack_cache.h); empty: the folder of the model.
  std::optional<std::filesystem::path> pack_cache = {};
  /// Whether the checkpoint and the file of packed weights are mapped or read into memory.
  formats::FileAccess access = formats::FileAccess::kMap;
};

/// A decoder-only transformer. The weights are packed at load and immutable; `forward` is not thread-safe (it
/// uses the context's threads itself).
class Decoder {
 public:
  /// Loads `model`, a directory or a GGUF file. Throws Error naming file and tensor.
  static std::unique_ptr<Decoder> load(const std::filesystem::path& model, const DecoderOptions& options,
                                       kernels::KernelContext& context);
  /// The same for a model whose config is already loaded.
  static std::unique_ptr<Decoder> load(const std::filesystem::path& model, model::ModelConfig config,
                                       const DecoderOptions& options, kernels::KernelContext& context);
  ~Decoder();

  const model::ModelConfig& config() const;
  ModelShape shape() const;
  DType compute_dtype() const;
  /// The formats of the matrices: see formats_in_use.
  std::string weight_formats() const;
  /// Bytes of packed weights in a mapped file. Every step reads them, although the system counts their memory
  /// as free.
  uint64_t mapped_weight_bytes() const;

  /// Computes `tokens` (those of seqs[0], then of seqs[1], ...) and writes their K/V into `cache`. What comes
  /// of a token does not depend on the batch, the chunking or the threads.
  void compute(kernels::KernelContext& context, KvCache& cache, std::span<const TokenId> tokens,
               std::span<const DecoderSeq> seqs);
  /// The logits of some of these tokens, [rows][vocab] f32. `rows`: their places in `tokens`, rising. Valid
  /// until the next call.
  std::span<const float> logits(kernels::KernelContext& context, std::span<const uint32_t> rows);
  /// Their hidden states after the final norm, [rows][hidden] f32. Valid until the next call.
  std::span<const float> hidden(kernels::KernelContext& context, std::span<const uint32_t> rows);
  /// compute(), then the logits that DecoderSeq::logit_rows asks for, in the order of the tokens.
  std::span<const float> forward(kernels::KernelContext& context, KvCache& cache,
                                 std::span<const TokenId> tokens, std::span<const DecoderSeq> seqs);

 private:
  Decoder();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::backend::cpu
