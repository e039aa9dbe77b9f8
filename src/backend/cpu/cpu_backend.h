#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/decoder.h"
#include "backend/cpu/loaded_model.h"
#include "tensor/dtype.h"

namespace quire::backend::cpu {

/// The processor of this machine; both pools are in its memory.
class CpuBackend final : public Backend {
 public:
  /// `kv_dtype`: f32, f16, bf16 or int8; nullopt: the compute type.
  CpuBackend(std::unique_ptr<LoadedModel> model, std::optional<DType> kv_dtype);

  std::string describe() const override;
  const ModelShape& shape() const override { return shape_; }
  /// By default K/V takes half of what is free.
  std::optional<DeviceMemory> memory() const override;
  void allocate(const PoolSize& size) override;
  uint64_t untouched_bytes() const override;
  StepSpeeds probe(Nanos step_time) override;
  /// For no more than tokens_to_reserve(); larger steps take more when they come. Of the pool, as many blocks
  /// as the tokens fill: all of it may be much more than is ever used.
  void reserve(uint32_t tokens) override;
  static constexpr uint32_t kMostReserved = 8192;
  /// At most kMostReserved of `tokens`, as many as the pool has room for, and what a quarter of the memory
  /// beside the pools can hold.
  static uint32_t tokens_to_reserve(uint32_t tokens, uint64_t room, uint64_t bytes_a_token,
                                    uint64_t spare_bytes);
  std::unique_ptr<Executor> make_executor() override;
  json::object kv_facts() const override;
  void read_block(BlockId block, std::span<std::byte> bytes) override;
  void write_block(BlockId block, std::span<const std::byte> bytes) override;

 private:
  std::unique_ptr<LoadedModel> model_;
  DType kv_dtype_;
  ModelShape shape_;
  PoolSize size_;
  std::unique_ptr<KvCache> cache_;  // both nullptr until allocate(); without swap the second stays so
  std::unique_ptr<KvCache> host_;
  uint32_t touched_blocks_ = 0;  // of the pool, by reserve()
};

}  // namespace quire::backend::cpu
