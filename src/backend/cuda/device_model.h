#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "backend/backend.h"
#include "backend/cuda/block_copier.h"
#include "backend/cuda/cuda_ops.h"
#include "backend/cuda/cuda_options.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/kv_cache.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/weights.h"
#include "backend/sync/step_model.h"
#include "control/step.h"
#include "decoder/forward_pass.h"
#include "model/config.h"

namespace quire::backend::cuda {

/// A model on one device, with the two pools of its K/V: that in the device's memory, and that of the host
/// for swapped blocks. All work is added to one stream if no other is named; hidden(), logits(), read() and
/// write() wait for it. Calls may come from a thread that has not chosen the device.
class DeviceModel final : public sync::StepModel {
 public:
  /// All but the numbers must outlive it. Throws Error if there is too little memory.
  DeviceModel(const CudaOptions& options, const model::ModelConfig& config, const ModelWeights& weights,
              Gemm& gemm, const PoolSize& size, Stream stream);

  Stream stream() const { return stream_; }
  const KvCache& cache() const { return cache_; }
  const model::ModelConfig& config() const { return config_; }
  /// Makes the device that of the calling thread.
  void use() const { use_device(device_); }

  void compute(std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs) override;
  /// The same where the tokens of some rows are on the device (CudaOps::expect_late).
  void compute(std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs,
               std::span<const LateRow> late, const TokenId* late_tokens);
  std::span<const float> logits(std::span<const uint32_t> rows) override;
  std::span<const float> hidden(std::span<const uint32_t> rows) override;
  /// As CudaOps has it. `rows`: not empty.
  DeviceLogits logits_on_device(std::span<const uint32_t> rows);

  void move_out(const control::BlockMove& move) override { move_out(move, stream_); }
  void move_in(const control::BlockMove& move) override { move_in(move, stream_); }
  void move_out(const control::BlockMove& move, Stream stream);
  void move_in(const control::BlockMove& move, Stream stream);
  void copy(std::span<const control::BlockCopy> copies) override;
  void read(BlockId block, std::byte* to);
  void write(BlockId block, const std::byte* from);
  void clear_cache() { clear(cache_.memory().data(), cache_.memory().size(), stream_); }

 private:
  std::byte* host_block(BlockId block) const {
    return host_.data() + size_t{block} * cache_.whole_block_bytes();
  }

  uint32_t device_;
  const model::ModelConfig& config_;
  Stream stream_;
  KvCache cache_;
  BlockCopier copier_;
  PinnedBuffer host_;
  CudaOps ops_;
  decoder::ForwardPass pass_;
};

}  // namespace quire::backend::cuda
