#pragma once

#include <filesystem>
#include <memory>
#include <utility>

#include "backend/cpu/inspect.h"
#include "backend/cuda/cuda_backend.h"
#include "formats/model_config.h"
#include "tests/backend/variants.h"
#include "tests/device_on_host/target.h"

namespace quire::test::fibers {

inline constexpr backend::cuda::StepLimits kStepLimits = {
    .rows = 1024, .seqs = 64, .positions = 128, .logit_rows = 64};

inline std::unique_ptr<backend::cuda::CudaBackend> backend_of(
    const std::filesystem::path& model, DType dtype, const backend::cuda::StepLimits& limits = kStepLimits,
    std::optional<WeightFormat> quantization = std::nullopt) {
  const model::ModelConfig config = formats::load_model_config(model);
  return std::make_unique<backend::cuda::CudaBackend>(
      backend::cuda::CudaOptions{
          .model = model, .dtype = dtype, .quantization = quantization, .limits = limits},
      config, backend::cpu::model_shape(config, dtype), cublaslt());
}

/// An executor with a backend of its own.
class OnDevice final : public backend::Executor {
 public:
  OnDevice(std::unique_ptr<backend::cuda::CudaBackend> backend, const backend::PoolSize& size)
      : backend_(std::move(backend)) {
    backend_->allocate(size);
    executor_ = backend_->make_executor();
  }
  uint32_t depth() const override { return executor_->depth(); }
  backend::Ticket submit(const control::StepPlan& plan) override { return executor_->submit(plan); }
  void provide(backend::Ticket ticket, backend::TokenMasks& masks) override {
    executor_->provide(ticket, masks);
  }
  control::StepResult wait(backend::Ticket ticket) override { return executor_->wait(ticket); }

 private:
  std::unique_ptr<backend::cuda::CudaBackend> backend_;
  std::unique_ptr<backend::Executor> executor_;
};

inline MakeExecutor on_device(const std::filesystem::path& model, DType dtype,
                              const backend::cuda::StepLimits& limits = kStepLimits,
                              std::optional<WeightFormat> quantization = std::nullopt) {
  return {[=](uint32_t num_blocks, uint32_t max_slots, uint32_t num_host_blocks) {
            return std::make_unique<OnDevice>(backend_of(model, dtype, limits, quantization),
                                              backend::PoolSize{.num_blocks = num_blocks,
                                                                .num_host_blocks = num_host_blocks,
                                                                .block_size = kBlockSize,
                                                                .num_slots = max_slots,
                                                                .max_model_len = 128});
          },
          backend::cpu::model_shape(formats::load_model_config(model), dtype).kv_windows};
}

}  // namespace quire::test::fibers
