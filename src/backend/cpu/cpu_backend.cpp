#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/cpu/cpu_executor.h"
#include "backend/cpu/inspect.h"
#include "backend/sync/probe.h"
#include "base/amounts.h"
#include "base/machine_limits.h"

namespace quire::backend::cpu {
namespace {

// A step that needs the logits of more sequences takes more memory when it comes.
constexpr uint32_t kMostLogitRows = 64;

/// Of the activations, nearly: the five matrices, one of them once more as a kernel takes it, and the
/// experts'.
uint64_t bytes_a_token(const model::ModelConfig& config) {
  const uint64_t hidden = config.hidden_size;
  const uint64_t heads = 2 * (uint64_t{config.num_heads} + config.num_kv_heads) * config.head_dim;
  return sizeof(float) * (4 * hidden + heads + 2 * config.moe.top * hidden);
}

}  // namespace

CpuBackend::CpuBackend(std::unique_ptr<LoadedModel> model, std::optional<DType> kv_dtype)
    : model_(std::move(model)),
      kv_dtype_(kv_dtype.value_or(model_->decoder->compute_dtype())),
      shape_(model_->decoder->shape()) {
  set_kv_dtype(shape_, kv_dtype_);
}

std::string CpuBackend::describe() const {
  return fmt::format("{} parameters, {} weights, K/V in {}, kernels {} on {} threads",
                     with_commas(shape_.num_parameters), model_->decoder->weight_formats(),
                     dtype_name(kv_dtype_), kernels::isa_name(model_->context.isa),
                     model_->pool.num_threads());
}

std::optional<DeviceMemory> CpuBackend::memory() const {
  const std::optional<MemoryLimit> limit = available_memory();
  if (!limit) return std::nullopt;
  // Mapped weights count as free to the system, but every step reads them.
  const uint64_t left = limit->bytes - std::min(limit->bytes, model_->decoder->mapped_weight_bytes());
  return DeviceMemory{.free_bytes = left, .kv_bytes = left / 2, .source = limit->source};
}

void CpuBackend::allocate(const PoolSize& size) {
  size_ = size;
  const auto pool = [&](uint32_t num_blocks) {
    return std::make_unique<KvCache>(model_->decoder->config(), kv_dtype_, num_blocks, size.block_size);
  };
  cache_ = pool(size.num_blocks);
  if (size.num_host_blocks > 0) host_ = pool(size.num_host_blocks);
}

uint64_t CpuBackend::untouched_bytes() const {
  const uint64_t blocks = uint64_t{size_.num_blocks} + size_.num_host_blocks - touched_blocks_;
  return model_->decoder->mapped_weight_bytes() + blocks * shape_.kv_block_bytes(size_.block_size);
}

StepSpeeds CpuBackend::probe(Nanos step_time) {
  CpuStepModel model(*model_->decoder, *cache_, model_->context, nullptr);
  return sync::probe(model,
                     {.num_blocks = cache_->num_blocks(),
                      .num_groups = cache_->num_groups(),
                      .block_size = cache_->block_size(),
                      .longest = size_.max_model_len,
                      .vocab_size = model_->decoder->config().vocab_size},
                     step_time, shape_.kv_block_bytes(size_.block_size));
}

uint32_t CpuBackend::tokens_to_reserve(uint32_t tokens, uint64_t room, uint64_t bytes_a_token,
                                       uint64_t spare_bytes) {
  return static_cast<uint32_t>(
      std::min({uint64_t{tokens}, room, uint64_t{kMostReserved}, spare_bytes / 4 / bytes_a_token}));
}

void CpuBackend::reserve(uint32_t tokens) {
  const uint64_t room = uint64_t{cache_->num_blocks() / cache_->num_groups()} * cache_->block_size();
  const std::optional<DeviceMemory> left = memory();
  const uint64_t pools = untouched_bytes() - model_->decoder->mapped_weight_bytes();
  const uint64_t spare = left ? left->free_bytes - std::min(left->free_bytes, pools) : UINT64_MAX;
  const uint64_t kv_bytes = cache_->num_groups() * shape_.kv_block_bytes(cache_->block_size());
  const uint32_t most = tokens_to_reserve(
      tokens, room, bytes_a_token(model_->decoder->config()) + kv_bytes / cache_->block_size(), spare);
  if (most == 0) return;
  model_->decoder->reserve(model_->context, most, std::min(most, kMostLogitRows));
  // The scheduler hands out the first blocks first.
  touched_blocks_ = cache_->num_groups() * (most / cache_->block_size());
  cache_->touch(model_->pool, touched_blocks_);
}

std::unique_ptr<Executor> CpuBackend::make_executor() {
  return std::make_unique<CpuExecutor>(*model_->decoder, *cache_, model_->context, size_.num_slots,
                                       host_.get());
}

json::object CpuBackend::kv_facts() const {
  return {{"dtype", dtype_name(model_->decoder->compute_dtype())},
          {"weights", model_->decoder->weight_formats()},
          {"kv_cache_dtype", dtype_name(kv_dtype_)},
          {"isa", kernels::isa_name(model_->context.isa)},
          {"kernel_version", kernels::kKernelVersion}};
}

void CpuBackend::read_block(BlockId block, std::span<std::byte> bytes) { cache_->read_block(block, bytes); }

void CpuBackend::write_block(BlockId block, std::span<const std::byte> bytes) {
  cache_->write_block(block, bytes);
}

}  // namespace quire::backend::cpu
