#include "backend/sim/sim_backend.h"

#include <utility>

#include <fmt/format.h>

#include "backend/sim/paced_executor.h"
#include "base/error.h"

namespace quire::backend::sim {

SimBackend::SimBackend(ModelShape shape, const CostModel& cost, SimTokens tokens, uint32_t depth,
                       double speed, uint64_t kv_bytes)
    : shape_(std::move(shape)),
      cost_(cost),
      tokens_(std::move(tokens)),
      depth_(depth),
      speed_(speed),
      kv_bytes_(kv_bytes) {
  cost_.check();
}

std::string SimBackend::describe() const {
  const RooflineCost* const roofline = cost_.roofline();
  const FittedCost* const fitted = cost_.fitted();
  std::string of;
  if (roofline != nullptr) of = " of " + roofline->machine;
  if (fitted != nullptr) of = fmt::format(" of {} on {}", fitted->model, fitted->machine);
  return fmt::format("simulated, at {} times the speed{}: the words are arbitrary", speed_, of);
}

std::optional<DeviceMemory> SimBackend::memory() const {
  return DeviceMemory{.free_bytes = UINT64_MAX, .kv_bytes = kv_bytes_, .source = "a simulated device"};
}

StepSpeeds SimBackend::probe(Nanos step_time) {
  return {.tokens_a_step = cost_.prefill_tokens_in(step_time),
          .context_cost = cost_.context_cost(),
          .costs = cost_.hints(size_.num_slots),
          .varies = cost_.fitted() != nullptr};  // as the machine does that it was fitted to
}

std::unique_ptr<Executor> SimBackend::make_executor() {
  control::SchedulerConfig limits;
  limits.num_blocks = size_.num_blocks;
  limits.num_host_blocks = size_.num_host_blocks;
  limits.block_size = size_.block_size;
  limits.kv_windows = shape_.kv_windows;
  limits.max_num_seqs = size_.num_slots;
  limits.max_model_len = size_.max_model_len;
  return std::make_unique<PacedExecutor>(std::make_unique<SimExecutor>(limits, cost_, tokens_, depth_),
                                         static_cast<uint32_t>(speed_ * 100));
}

void SimBackend::read_block(BlockId, std::span<std::byte>) {
  throw Error("a simulated device has no K/V to read");
}

void SimBackend::write_block(BlockId, std::span<const std::byte>) {
  throw Error("a simulated device has no K/V to write");
}

}  // namespace quire::backend::sim
