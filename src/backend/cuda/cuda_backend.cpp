#include "backend/cuda/cuda_backend.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "backend/sync/probe.h"
#include "backend/sync/step_model.h"
#include "backend/sync/sync_executor.h"
#include "base/amounts.h"
#include "decoder/forward_pass.h"

namespace quire::backend::cuda {
namespace {

/// Increased by every change of a kernel or of the layout of blocks that may change a bit of K/V.
constexpr int kDeviceKernelVersion = 1;
constexpr uint32_t kSmallestBlock = 16;  // tokens; the block tables of smaller blocks are longer

/// Before anything is allocated.
CudaOptions on_its_device(const CudaOptions& options) {
  use_device(options.device);
  return options;
}

}  // namespace

/// The forward pass on the device, with the two pools of its K/V. Its calls come from a thread that may not
/// have chosen the device.
class CudaBackend::Model final : public sync::StepModel {
 public:
  Model(const CudaBackend& owner, Gemm& gemm)
      : device_(owner.options_.device),
        stream_(owner.stream_),
        cache_(owner.config_, owner.options_.dtype, owner.size_.num_blocks, owner.size_.block_size),
        host_(cache_.whole_block_bytes() * owner.size_.num_host_blocks, "the blocks that are swapped out"),
        ops_(owner.config_, owner.weights_, cache_, gemm, stream_, owner.options_.limits),
        pass_(owner.config_, owner.options_.dtype, owner.options_.limits.positions) {}

  void compute(std::span<const TokenId> tokens, std::span<const decoder::BatchSeq> seqs) override {
    use_device(device_);
    pass_.compute(ops_, {cache_.groups(), cache_.num_blocks(), cache_.blocks().block_size}, tokens, seqs);
  }
  std::span<const float> logits(std::span<const uint32_t> rows) override {
    use_device(device_);
    return pass_.logits(ops_, rows);
  }
  std::span<const float> hidden(std::span<const uint32_t> rows) override {
    use_device(device_);
    return pass_.hidden(ops_, rows);
  }

  void move_out(const control::BlockMove& move) override {
    use_device(device_);
    std::byte* to = host_block(move.host);
    cache_.for_each_part(move.device, [&](std::byte* part, size_t bytes) {
      copy_to_host(std::exchange(to, to + bytes), part, bytes, stream_);
    });
  }
  void move_in(const control::BlockMove& move) override {
    use_device(device_);
    const std::byte* from = host_block(move.host);
    cache_.for_each_part(move.device, [&](std::byte* part, size_t bytes) {
      copy_to_device(part, std::exchange(from, from + bytes), bytes, stream_);
    });
  }
  void copy(const control::BlockCopy& copy) override {
    use_device(device_);
    std::vector<const std::byte*> from;
    cache_.for_each_part(copy.from, [&](std::byte* part, size_t) { from.push_back(part); });
    auto next = from.begin();
    cache_.for_each_part(
        copy.to, [&](std::byte* part, size_t bytes) { copy_on_device(part, *next++, bytes, stream_); });
  }
  void read(BlockId block, std::byte* to) {
    use_device(device_);
    cache_.for_each_part(block, [&](std::byte* part, size_t bytes) {
      copy_to_host(std::exchange(to, to + bytes), part, bytes, stream_);
    });
    synchronize(stream_);
  }
  void write(BlockId block, const std::byte* from) {
    use_device(device_);
    cache_.for_each_part(block, [&](std::byte* part, size_t bytes) {
      copy_to_device(part, std::exchange(from, from + bytes), bytes, stream_);
    });
    synchronize(stream_);
  }
  const KvCache& cache() const { return cache_; }
  void clear_cache() { clear(cache_.memory().data(), cache_.memory().size(), stream_); }

 private:
  std::byte* host_block(BlockId block) const {
    return host_.data() + size_t{block} * cache_.whole_block_bytes();
  }

  uint32_t device_;
  Stream stream_;
  KvCache cache_;
  PinnedBuffer host_;
  CudaOps ops_;
  decoder::ForwardPass pass_;
};

CudaBackend::CudaBackend(const CudaOptions& options, model::ModelConfig config, ModelShape shape,
                         const lt::Api& lt)
    : options_(on_its_device(options)),
      config_(std::move(config)),
      shape_(std::move(shape)),
      pool_(options.threads),
      weights_(load_weights(options.model, config_, options.dtype, pool_, stream_)),
      gemm_(lt, stream_) {}

CudaBackend::~CudaBackend() = default;

std::string CudaBackend::describe() const {
  return fmt::format("{} parameters, {} weights and K/V on {}", with_commas(shape_.num_parameters),
                     dtype_name(options_.dtype), device_facts().name);
}

std::optional<DeviceMemory> CudaBackend::memory() const {
  const DeviceFacts facts = device_facts();
  const auto usable =
      static_cast<uint64_t>(static_cast<double>(facts.total_bytes) * options_.memory_utilization);
  const uint64_t taken = facts.total_bytes - facts.free_bytes +
                         CudaOps::bytes_for(config_, options_.dtype, kSmallestBlock, options_.limits);
  return DeviceMemory{
      .free_bytes = facts.free_bytes, .kv_bytes = usable - std::min(usable, taken), .source = facts.name};
}

void CudaBackend::allocate(const PoolSize& size) {
  size_ = size;
  model_ = std::make_unique<Model>(*this, gemm_);
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
  return std::make_unique<sync::SyncExecutor>(*model_,
                                              SlotTable::Limits{.num_slots = size_.num_slots,
                                                                .num_blocks = size_.num_blocks,
                                                                .num_host_blocks = size_.num_host_blocks,
                                                                .block_size = size_.block_size,
                                                                .windows = model_->cache().groups().windows,
                                                                .max_positions = config_.max_positions,
                                                                .vocab_size = config_.vocab_size},
                                              pool_);
}

json::object CudaBackend::kv_facts() const {
  return {{"dtype", dtype_name(options_.dtype)},
          {"device", "cuda"},
          {"capability", device_facts().capability},
          {"kernel_version", kDeviceKernelVersion}};
}

void CudaBackend::read_block(BlockId block, std::span<std::byte> bytes) { model_->read(block, bytes.data()); }

void CudaBackend::write_block(BlockId block, std::span<const std::byte> bytes) {
  model_->write(block, bytes.data());
}

}  // namespace quire::backend::cuda
