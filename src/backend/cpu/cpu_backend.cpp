#include "backend/cpu/cpu_backend.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "backend/cpu/cpu_executor.h"
#include "backend/cpu/inspect.h"
#include "base/amounts.h"
#include "base/machine_limits.h"
#include "model/kv_groups.h"

namespace quire::backend::cpu {
namespace {

constexpr uint32_t kProbeTokens = 128;
constexpr uint32_t kProbeFew = 16;        // few enough to cost little ...
constexpr uint32_t kProbeContext = 2048;  // ... after enough context to show what it adds

/// The measured cost of a prompt token.
struct TokenCost {
  double seconds = 0;       // without context
  double context_part = 0;  // what each token of context adds, as a fraction of `seconds`
};

/// Measured on the empty pool. `longest`: the length of the longest sequence.
TokenCost measure(LoadedModel& model, KvCache& cache, uint32_t longest) {
  const uint32_t room = std::min(cache.num_blocks() / cache.num_groups() * cache.block_size(), longest);
  const uint32_t length = std::min(kProbeTokens, room);
  const uint32_t context = std::min(kProbeContext, room - length);
  std::vector<TokenId> tokens(length);
  const uint32_t vocab = model.decoder->config().vocab_size;
  for (uint32_t i = 0; i < length; ++i) tokens[i] = static_cast<TokenId>(i * 7919 % vocab);
  const uint32_t rows = (context + length + cache.block_size() - 1) / cache.block_size();
  const auto tables = model::consecutive_tables(cache.num_groups(), rows, 0);
  const auto seconds = [&](uint32_t position, uint32_t count) {
    const decoder::BatchSeq seq{count, position, tables, 1};
    const auto start = std::chrono::steady_clock::now();
    model.decoder->forward(model.context, cache, std::span(tokens).first(count), {&seq, 1});
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  const uint32_t few = std::min(kProbeFew, length);
  for (const uint32_t position : {0U, context}) seconds(position, few);  // warm up the threads and the memory
  const double first = seconds(0, length);
  // The faster one, since StepBudget never goes above it.
  TokenCost cost{.seconds = std::min(first, seconds(0, length)) / length};
  const double more = seconds(context, few) - seconds(0, few);
  if (context > 0 && more > 0) cost.context_part = more / few / context / cost.seconds;
  return cost;
}

/// A decoded token costs as much as several prompt tokens, since the weights are read for a few at a time.
/// Blocks are copied within the machine's memory.
control::CostHints costs_of(const TokenCost& token, uint64_t block_bytes) {
  constexpr double kCopyBytesPerSecond = 4e9;
  control::CostHints costs;
  costs.prefill_token = std::max<Nanos>(1, static_cast<Nanos>(token.seconds * 1e9));
  costs.decode_token = 4 * costs.prefill_token;
  costs.swap_block =
      std::max<Nanos>(1, static_cast<Nanos>(static_cast<double>(block_bytes) / kCopyBytesPerSecond * 1e9));
  return costs;
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
  const uint64_t blocks = uint64_t{size_.num_blocks} + size_.num_host_blocks;
  return model_->decoder->mapped_weight_bytes() + blocks * shape_.kv_block_bytes(size_.block_size);
}

StepSpeeds CpuBackend::probe(Nanos step_time) {
  const TokenCost cost = measure(*model_, *cache_, size_.max_model_len);
  const double tokens = static_cast<double>(step_time) / 1e9 / cost.seconds;
  return {.tokens_a_step = static_cast<uint64_t>(std::min<double>(tokens, UINT32_MAX)) / 16 * 16,
          .context_cost = static_cast<uint32_t>(std::min(cost.context_part * 1e6, 1e6)),
          .costs = costs_of(cost, shape_.kv_block_bytes(size_.block_size)),
          .varies = true};
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
