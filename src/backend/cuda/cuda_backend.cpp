#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/cuda/cuda_executor.h"
#include "backend/sync/probe.h"
#include "backend/sync/sync_executor.h"
#include "base/amounts.h"

namespace quire::backend::cuda {
namespace {

/// Increased by every change of a kernel or of the layout of blocks that may change a bit of K/V.
constexpr int kDeviceKernelVersion = 2;
constexpr uint32_t kSmallestBlock = 16;  // tokens; the block tables of smaller blocks are longer

/// Before anything is allocated.
CudaOptions on_its_device(const CudaOptions& options) {
  use_device(options.device);
  return options;
}

}  // namespace

CudaBackend::CudaBackend(const CudaOptions& options, model::ModelConfig config, ModelShape shape,
                         const lt::Api& lt)
    : options_(on_its_device(options)),
      config_(std::move(config)),
      shape_(std::move(shape)),
      pool_(options.threads),
      weights_(load_weights(options.model, config_, options.dtype, pool_, stream_.get(),
                            {.quantization = options.quantization})),
      gemm_(lt, stream_.get(), options.fast_gemm ? GemmChoice::kFastest : GemmChoice::kSameForAllRows),
      tried_products_(CudaOps::prepare(gemm_, weights_, options.limits)),
      library_version_(lt.GetVersion()) {}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::describe() const {
  const std::string_view dtype = dtype_name(options_.dtype);
  return fmt::format("{} parameters, {} weights and {}K/V on {}{}", with_commas(shape_.num_parameters),
                     options_.quantization ? weight_format_name(*options_.quantization) : dtype,
                     options_.quantization ? fmt::format("{} ", dtype) : "", device_facts().name,
                     tried_products_ ? "" : ", too full to try which matrix products are the fastest");
}

std::optional<DeviceMemory> CudaBackend::memory() const {
  const DeviceFacts facts = device_facts();
  const auto usable =
      static_cast<uint64_t>(static_cast<double>(facts.total_bytes) * options_.memory_utilization);
  const uint64_t taken = facts.total_bytes - facts.free_bytes +
                         CudaOps::bytes_for(config_, options_.dtype, kSmallestBlock, options_.limits) +
                         sampling_bytes(options_.limits.seqs, config_.max_positions, config_.vocab_size);
  return DeviceMemory{
      .free_bytes = facts.free_bytes, .kv_bytes = usable - std::min(usable, taken), .source = facts.name};
}

void CudaBackend::allocate(const PoolSize& size) {
  size_ = size;
  model_ = std::make_unique<DeviceModel>(options_, config_, weights_, gemm_, size_, stream_.get());
}

StepSpeeds CudaBackend::probe(Nanos step_time) {
  model_->clear_cache();  // context is read that nothing has computed
  return sync::probe(*model_,
                     {.num_blocks = size_.num_blocks,
                      .num_groups = model_->cache().num_groups(),
                      .block_size = size_.block_size,
                      .longest = std::min(size_.max_model_len, options_.limits.rows),
                      .vocab_size = config_.vocab_size},
                     step_time, shape_.kv_block_bytes(size_.block_size));
}

std::unique_ptr<Executor> CudaBackend::make_executor() {
  const SlotTable::Limits limits{.num_slots = size_.num_slots,
                                 .num_blocks = size_.num_blocks,
                                 .num_host_blocks = size_.num_host_blocks,
                                 .block_size = size_.block_size,
                                 .windows = model_->cache().groups().windows,
                                 .max_positions = config_.max_positions,
                                 .vocab_size = config_.vocab_size};
  model_->use();
  if (samples_there()) {
    return std::make_unique<CudaExecutor>(*model_, limits, pool_, options_.steps_in_flight);
  }
  return std::make_unique<sync::SyncExecutor>(*model_, limits, pool_);
}

json::object CudaBackend::kv_facts() const {
  return {{"dtype", dtype_name(options_.dtype)},
          {"device", "cuda"},
          {"card", device_facts().name},
          {"cublaslt", library_version_},
          {"fast_gemm", options_.fast_gemm},
          {"quantization", options_.quantization ? weight_format_name(*options_.quantization) : "none"},
          {"kernel_version", kDeviceKernelVersion}};
}

void CudaBackend::read_block(BlockId block, std::span<std::byte> bytes) { model_->read(block, bytes.data()); }

void CudaBackend::write_block(BlockId block, std::span<const std::byte> bytes) {
  model_->write(block, bytes.data());
}

}  // namespace quire::backend::cuda
