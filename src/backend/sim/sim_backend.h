#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include "backend/backend.h"
#include "backend/sim/cost_model.h"
#include "backend/sim/sim_executor.h"

namespace quire::backend::sim {

/// A simulated device: no weights, no K/V, steps that last as long as the cost model says by the machine's
/// clock, and arbitrary tokens.
class SimBackend final : public Backend {
 public:
  /// `shape`: of the model whose place it takes. `depth`: see Executor. `speed`: the device is so many times
  /// as fast as `cost` says, at least 0.01. `kv_bytes`: the memory that K/V takes unless the user says
  /// otherwise; the blocks hold nothing, so more may be asked for.
  SimBackend(ModelShape shape, const CostModel& cost, SimTokens tokens, uint32_t depth, double speed,
             uint64_t kv_bytes = UINT64_MAX);

  std::string describe() const override;
  const ModelShape& shape() const override { return shape_; }
  std::optional<DeviceMemory> memory() const override;
  void allocate(const PoolSize& size) override { size_ = size; }
  uint64_t untouched_bytes() const override { return 0; }
  StepSpeeds probe(Nanos step_time) override;
  std::unique_ptr<Executor> make_executor() override;
  json::object kv_facts() const override { return {}; }
  void read_block(BlockId block, std::span<std::byte> bytes) override;
  void write_block(BlockId block, std::span<const std::byte> bytes) override;

 private:
  ModelShape shape_;
  CostModel cost_;
  SimTokens tokens_;
  uint32_t depth_;
  double speed_;
  uint64_t kv_bytes_;
  PoolSize size_;
};

}  // namespace quire::backend::sim
