#pragma once

#include <filesystem>
#include <memory>

#include "backend/cpu/cpu_executor.h"
#include "tests/backend/variants.h"

namespace quire::test {

/// An executor with a cache of its own.
class OwningExecutor final : public Executor {
 public:
  OwningExecutor(Decoder& decoder, KernelContext& context, uint32_t num_blocks, uint32_t max_slots,
                 uint32_t num_host_blocks = 0)
      : cache_(decoder.config(), decoder.compute_dtype(), num_blocks, kBlockSize),
        host_(decoder.config(), decoder.compute_dtype(), num_host_blocks, kBlockSize),
        executor_(decoder, cache_, context, max_slots, &host_) {}
  Ticket submit(const StepPlan& plan) override { return executor_.submit(plan); }
  StepResult wait(Ticket ticket) override { return executor_.wait(ticket); }
  KvCache& cache() { return cache_; }

 private:
  KvCache cache_;
  KvCache host_;
  CpuExecutor executor_;
};

/// A loaded model and what it runs on.
struct Rig {
  Rig(const std::filesystem::path& dir, const DecoderOptions& options, IsaLevel isa, uint32_t threads)
      : pool(threads), context{isa, pool}, decoder(Decoder::load(dir, options, context)) {}

  MakeExecutor make_executor() {
    return {[this](uint32_t num_blocks, uint32_t max_slots, uint32_t num_host_blocks) {
              return std::make_unique<OwningExecutor>(*decoder, context, num_blocks, max_slots,
                                                      num_host_blocks);
            },
            decoder->shape().kv_windows};
  }

  ThreadPool pool;
  KernelContext context;
  std::unique_ptr<Decoder> decoder;
};

}  // namespace quire::test
