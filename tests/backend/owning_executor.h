#pragma once

#include <filesystem>
#include <memory>
#include <optional>

#include "backend/cpu/cpu_executor.h"
#include "tests/backend/variants.h"

namespace quire::test {

/// An executor with a cache of its own.
class OwningExecutor final : public backend::Executor {
 public:
  /// `kv`: the compute type if there is none.
  OwningExecutor(backend::cpu::Decoder& decoder, kernels::KernelContext& context, uint32_t num_blocks,
                 uint32_t max_slots, uint32_t num_host_blocks = 0, std::optional<DType> kv = std::nullopt)
      : cache_(decoder.config(), kv.value_or(decoder.compute_dtype()), num_blocks, kBlockSize),
        host_(decoder.config(), kv.value_or(decoder.compute_dtype()), num_host_blocks, kBlockSize),
        executor_(decoder, cache_, context, max_slots, &host_) {}
  backend::Ticket submit(const control::StepPlan& plan) override { return executor_.submit(plan); }
  void provide(backend::Ticket ticket, backend::TokenMasks& masks) override {
    executor_.provide(ticket, masks);
  }
  control::StepResult wait(backend::Ticket ticket) override { return executor_.wait(ticket); }
  backend::cpu::KvCache& cache() { return cache_; }

 private:
  backend::cpu::KvCache cache_;
  backend::cpu::KvCache host_;
  backend::cpu::CpuExecutor executor_;
};

/// A loaded model and what it runs on.
struct Rig {
  Rig(const std::filesystem::path& dir, const backend::cpu::DecoderOptions& options, kernels::IsaLevel isa,
      uint32_t threads, std::optional<DType> kv_dtype = std::nullopt)
      : kv(kv_dtype),
        pool(threads),
        context{isa, pool},
        decoder(backend::cpu::Decoder::load(dir, options, context)) {}

  MakeExecutor make_executor() {
    return {[this](uint32_t num_blocks, uint32_t max_slots, uint32_t num_host_blocks) {
              return std::make_unique<OwningExecutor>(*decoder, context, num_blocks, max_slots,
                                                      num_host_blocks, kv);
            },
            decoder->shape().kv_windows};
  }

  std::optional<DType> kv;
  ThreadPool pool;
  kernels::KernelContext context;
  std::unique_ptr<backend::cpu::Decoder> decoder;
};

}  // namespace quire::test
