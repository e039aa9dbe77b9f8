#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <vector>

#include "backend/cuda/runtime.h"
#include "backend/cuda/stream.h"
#include "base/thread_pool.h"
#include "model/config.h"
#include "tensor/dtype.h"
#include "tensor/weight_format.h"

namespace quire::backend::cuda {

/// A weight matrix [n, k] on the device, row-major, with the bias [n] of its outputs or null. With scales its
/// numbers are int8 as int8_weights.h has them, with scales of groups too int4 as int4_weights.h has them,
/// else those of the model.
struct Matrix {
  const void* data = nullptr;
  const float* scales = nullptr;  // [n]
  const int8_t* group_scales = nullptr;
  const void* bias = nullptr;
  uint32_t n = 0;
  uint32_t k = 0;
};

/// Norms are f32, and null if the model has none. They are factors: for families that store them minus 1, the
/// 1 is already added.
struct LayerWeights {
  const float* attention_norm = nullptr;  // [hidden]
  Matrix qkv;                             // [(heads + 2 kv_heads) * head_dim, hidden]
  const float* q_norm = nullptr;          // [head_dim], or [heads * head_dim] with QkNorm::kWhole
  const float* k_norm = nullptr;
  Matrix o;  // [hidden, heads * head_dim]
  const float* post_attention_norm = nullptr;
  const float* ffn_norm = nullptr;
  Matrix gate_up;  // [2 ffn, hidden]; in a layer with experts that of each, one behind the other
  Matrix down;     // [hidden, ffn]; likewise
  Matrix router;   // [router_rows(experts), hidden], of which the last may be zeros; empty in a dense layer
  const float* post_ffn_norm = nullptr;
};

/// A model's weights on the device, in one allocation: embeddings, routers and biases in one number type, and
/// so are the other matrices, or else int8 or int4.
struct ModelWeights {
  DType dtype = DType::kBF16;
  DeviceBuffer memory;
  const void* embedding = nullptr;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;  // [hidden]
  Matrix head;                        // [vocab, hidden]; the embeddings if they are tied and not quantized
};

struct WeightOptions {
  /// Int8 or int4: of the matrices of the layers, without routers, and of the head.
  std::optional<WeightFormat> quantization;
  size_t staged = size_t{32} << 20;  // bytes that the host converts while the device copies those before
};

/// `model`: a directory or a GGUF file, whose quantized matrices are expanded. Determines the head, then
/// copies all tensors as `dtype`: f32, f16 or bf16, from the mapped file through pinned memory. Rows of
/// int8 and int4 are rounded as kernels::quantize_int8() and quantize_int4() do; a row's scale is NaN if a
/// weight is not finite. Throws Error naming file and tensor, or if the device has too little memory.
ModelWeights load_weights(const std::filesystem::path& model, model::ModelConfig& config, DType dtype,
                          ThreadPool& pool, Stream stream, const WeightOptions& options = {});

}  // namespace quire::backend::cuda
