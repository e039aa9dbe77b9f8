#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/model_shape.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "model/checkpoint.h"
#include "model/config.h"
#include "tensor/buffer.h"

namespace quire {

/// y = W x (+ bias), several matrices of the checkpoint stacked into one.
struct Linear {
  PackedMatrix matrix;
  Buffer bias;  // f32 [n], empty if none

  const float* bias_data() const { return bias.size() == 0 ? nullptr : bias.as<float>(); }
};

struct LayerWeights {
  Buffer attention_norm;  // f32 [hidden]
  Linear qkv;             // [(heads + 2 kv_heads) * head_dim, hidden]
  Buffer q_norm;          // f32 [head_dim], empty if none
  Buffer k_norm;
  Linear o;  // [hidden, heads * head_dim]
  Buffer ffn_norm;
  Linear gate_up;  // [2 ffn, hidden]
  Linear down;     // [hidden, ffn]
};

/// A model's weights, ready for the kernels. An embedding table that is not quantized stays in the
/// checkpoint's mapped file, of which only the rows looked up become resident.
struct ModelWeights {
  std::unique_ptr<Checkpoint> file;
  LoadedTensor embedding;  // [vocab, hidden]
  std::vector<LayerWeights> layers;
  Buffer final_norm;
  PackedMatrix head;  // [vocab, hidden]
};

/// A tensor that a model of this config must have.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// All of them, each once. Where a family stores fused matrices, those.
std::vector<ExpectedTensor> expected_tensors(const ModelConfig& config);

/// The tensors are there, with the shapes expected, floating-point. Throws Error
/// "FILE: tensor 'x' has shape [..], expected [..]".
void check_tensors(const ModelConfig& config, const Checkpoint& file);

/// `model`: a directory or a GGUF file.
ModelWeights load_weights(const std::filesystem::path& model, const ModelConfig& config, DType compute,
                          KernelContext& context);

}  // namespace quire
