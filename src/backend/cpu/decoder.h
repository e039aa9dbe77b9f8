#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/cpu/kv_cache.h"
#include "backend/model_shape.h"
#include "base/ids.h"
#include "decoder/batch.h"
#include "formats/mapped_file.h"
#include "kernels/context.h"
#include "model/config.h"
#include "tensor/weight_format.h"

namespace quire::backend::cpu {

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

/// The forward pass of decoder/forward_pass.h on the CPU. The weights are packed at load and immutable;
/// `forward` is not thread-safe (it uses the context's threads itself).
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

  /// Takes the memory of steps of up to so many tokens, and of logits of so many rows, before the first of
  /// them (see CpuOps::reserve). Larger steps take more when they come.
  void reserve(kernels::KernelContext& context, size_t tokens, size_t logit_rows);

  /// Computes `tokens` (those of seqs[0], then of seqs[1], ...) and writes their K/V into `cache`. What comes
  /// of a token does not depend on the batch, the chunking or the threads.
  void compute(kernels::KernelContext& context, KvCache& cache, std::span<const TokenId> tokens,
               std::span<const decoder::BatchSeq> seqs);
  /// The logits of some of these tokens, [rows][vocab] f32. `rows`: their places in `tokens`, rising. Valid
  /// until the next call.
  std::span<const float> logits(kernels::KernelContext& context, std::span<const uint32_t> rows);
  /// Their hidden states after the final norm, [rows][hidden] f32. Valid until the next call.
  std::span<const float> hidden(kernels::KernelContext& context, std::span<const uint32_t> rows);
  /// compute(), then the logits that BatchSeq::logit_rows asks for, in the order of the tokens.
  std::span<const float> forward(kernels::KernelContext& context, KvCache& cache,
                                 std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs);

 private:
  struct Impl;
  explicit Decoder(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace quire::backend::cpu
