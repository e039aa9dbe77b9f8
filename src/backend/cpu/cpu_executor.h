#pragma once

#include <cstdint>
#include <span>

#include "backend/cpu/decoder.h"
#include "backend/cpu/kv_cache.h"
#include "backend/sync/step_model.h"
#include "backend/sync/sync_executor.h"
#include "base/ids.h"
#include "kernels/context.h"

namespace quire::backend::cpu {

/// A decoder with the two pools of its K/V.
class CpuStepModel : public sync::StepModel {
 public:
  CpuStepModel(Decoder& decoder, KvCache& cache, kernels::KernelContext& context, KvCache* host)
      : decoder_(decoder), cache_(cache), context_(context), host_(host) {}

  void compute(std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs) override {
    decoder_.compute(context_, cache_, tokens, seqs);
  }
  std::span<const float> logits(std::span<const uint32_t> rows) override {
    return decoder_.logits(context_, rows);
  }
  std::span<const float> hidden(std::span<const uint32_t> rows) override {
    return decoder_.hidden(context_, rows);
  }
  void move_out(const control::BlockMove& move) override {
    host_->copy_block(cache_, move.device, move.host);
  }
  void move_in(const control::BlockMove& move) override { cache_.copy_block(*host_, move.host, move.device); }
  void copy(std::span<const control::BlockCopy> copies) override {
    for (const control::BlockCopy& copy : copies) cache_.copy_block(cache_, copy.from, copy.to);
  }

 private:
  Decoder& decoder_;
  KvCache& cache_;
  kernels::KernelContext& context_;
  KvCache* const host_;
};

/// A SyncExecutor on the CPU: the threads of the context compute and sample.
class CpuExecutor final : private CpuStepModel, public sync::SyncExecutor {
 public:
  /// All three must outlive the executor, and no other code may use `cache` and `context` while it computes.
  /// Slots are [0, max_slots). `host`: the host pool for block moves, of the same model and type; it must
  /// outlive the executor too.
  CpuExecutor(Decoder& decoder, KvCache& cache, kernels::KernelContext& context, uint32_t max_slots,
              KvCache* host = nullptr)
      : CpuStepModel(decoder, cache, context, host),
        SyncExecutor(static_cast<CpuStepModel&>(*this),
                     {.num_slots = max_slots,
                      .num_blocks = cache.num_blocks(),
                      .num_host_blocks = host == nullptr ? 0 : host->num_blocks(),
                      .block_size = cache.block_size(),
                      .windows = cache.groups().windows,
                      .max_positions = decoder.config().max_positions,
                      .vocab_size = decoder.config().vocab_size},
                     context.pool) {}
};

}  // namespace quire::backend::cpu
