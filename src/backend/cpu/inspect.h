#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <string>

#include "backend/model_shape.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "tensor/weight_format.h"

namespace quire::backend::cpu {

/// The shape that follows from a config alone; weight_bytes assumes that all weights have the config's dtype.
ModelShape model_shape(const model::ModelConfig& config, DType kv_dtype);

/// What the weights of a model take in memory, as load_weights packs them, and what a token needs of them.
struct WeightSizes {
  /// The matrices of the layers and the head by their format, norms and biases as "f32". In bytes; all of it
  /// is read by a step that uses all experts.
  std::map<std::string, uint64_t> packed;
  std::string matrix_formats;  // of the matrices without routers, as Decoder::weight_formats names them
  uint64_t expert_bytes = 0;   // of them, those of all experts
  uint64_t embedding_bytes =
      0;  // of the embeddings, which are beside them: a step reads a row for each token
  bool embedding_in_file = true;  // whether they stay in the checkpoint's mapped file; else they are a copy

  // Parameters that a token is multiplied with.
  uint64_t layer_parameters = 0;   // without those of experts
  uint64_t expert_parameters = 0;  // of all experts
  uint64_t head_parameters = 0;

  uint64_t packed_bytes() const;
  /// What stays resident on this machine: the packed weights, and the embeddings if they are a copy.
  uint64_t resident_bytes() const { return packed_bytes() + (embedding_in_file ? 0 : embedding_bytes); }
};

/// With the matrices in `format`: f32, f16, bf16, int8 or int4. `file`: the checkpoint, or null if it is not
/// there. `own_blocks`: its quantized matrices stay as they are (WeightSetting::own_blocks).
WeightSizes weight_sizes(const model::ModelConfig& config, WeightFormat format,
                         const formats::Checkpoint* file = nullptr, bool own_blocks = false);

/// Sets the K/V type: f32, f16, bf16 or int8.
void set_kv_dtype(ModelShape& shape, DType dtype);

/// The shape of a model (a directory or a GGUF file), weights checked but not loaded; K/V in the checkpoint's
/// dtype. Throws Error with file and key or tensor.
ModelShape inspect_model(const std::filesystem::path& model);
/// The same for a checkpoint whose config is already loaded; determines its head (weights.h).
ModelShape inspect_model(const formats::Checkpoint& file, model::ModelConfig& config);

}  // namespace quire::backend::cpu
