#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "backend/backend.h"
#include "backend/cuda/cublaslt.h"
#include "backend/cuda/cuda_options.h"
#include "backend/cuda/device_model.h"
#include "backend/cuda/gemm.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/weights.h"
#include "base/thread_pool.h"
#include "model/config.h"

namespace quire::backend::cuda {

/// The NVIDIA GPU CudaOptions::device, which the constructing thread must have chosen. Steps are computed
/// and sampled there, two in flight; on the host if the vocabulary is larger than its sampler takes.
class CudaBackend final : public Backend {
 public:
  /// Loads the weights. `config`: that of the model, with what the user has changed; `shape` follows from it.
  /// `lt` must outlive the backend. Throws Error if the model has what this device does not compute yet, or
  /// if there is too little memory.
  CudaBackend(const CudaOptions& options, model::ModelConfig config, ModelShape shape, const lt::Api& lt);
  ~CudaBackend() override;

  std::string describe() const override;
  const ModelShape& shape() const override { return shape_; }
  std::optional<DeviceMemory> memory() const override;
  void allocate(const PoolSize& size) override;
  uint64_t untouched_bytes() const override { return 0; }  // of the host's
  StepSpeeds probe(Nanos step_time) override;
  std::unique_ptr<Executor> make_executor() override;
  json::object kv_facts() const override;
  void read_block(BlockId block, std::span<std::byte> bytes) override;
  void write_block(BlockId block, std::span<const std::byte> bytes) override;

 private:
  bool samples_there() const { return config_.vocab_size <= kMostSampledVocabulary; }

  CudaOptions options_;
  model::ModelConfig config_;
  ModelShape shape_;
  ThreadPool pool_;
  OwnStream stream_;
  ModelWeights weights_;
  Gemm gemm_;
  bool tried_products_;
  size_t library_version_;
  PoolSize size_;
  std::unique_ptr<DeviceModel> model_;  // null until allocate()
};

}  // namespace quire::backend::cuda
