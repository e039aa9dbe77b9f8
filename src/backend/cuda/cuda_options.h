#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>

#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace quire::backend::cuda {

/// The largest step: what memory is for.
struct StepLimits {
  uint32_t rows = 0;        // tokens
  uint32_t seqs = 0;        // sequences in it
  uint32_t positions = 0;   // tokens of a sequence
  uint32_t logit_rows = 0;  // rows of logits that are asked for at once
  /// Blocks of threads with large tiles of attention below which tiles are small. No result depends on it.
  uint32_t few_blocks = 128;
};

struct CudaOptions {
  std::filesystem::path model;  // a directory or a GGUF file
  uint32_t device = 0;          // as CUDA counts them
  DType dtype = DType::kBF16;   // of weights, activations and K/V: bf16, f16 or f32
  /// Int8 or int4: of the matrices of layers and head. Then dtype is bf16 or f16.
  std::optional<WeightFormat> quantization;
  StepLimits limits;                // the largest step, and the longest sequence
  double memory_utilization = 0.9;  // how much of the device's memory may be taken, by others too
  bool fast_gemm = false;           // Gemm: the fastest products, whose bits may depend on the batch
  uint32_t steps_in_flight = 2;     // Executor::depth, if it samples on the device
  uint32_t threads = 1;             // of the host: masks, and what steps yield of prompts
};

}  // namespace quire::backend::cuda
