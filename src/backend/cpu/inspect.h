#pragma once

#include <filesystem>

#include "backend/model_shape.h"
#include "model/config.h"
#include "tensor/weight_format.h"

namespace quire::backend::cpu {

/// The shape that follows from a config alone; weight_bytes assumes that all weights have the config's dtype.
ModelShape model_shape(const model::ModelConfig& config, DType kv_dtype);
/// The memory of the layers' matrices, the head and the norms, with the matrices in `format`: f32, f16, bf16,
/// int8 or int4. The embeddings are not included, since only the rows that are looked up are read.
uint64_t packed_weight_bytes(const model::ModelConfig& config, WeightFormat format);
/// Sets the K/V type: f32, f16, bf16 or int8.
void set_kv_dtype(ModelShape& shape, DType dtype);

/// The shape of a model (a directory or a GGUF file), weights checked but not loaded; K/V in the checkpoint's
/// dtype. Throws Error with file and key or tensor.
ModelShape inspect_model(const std::filesystem::path& model);
/// The same for a model whose config is already loaded; determines its head (weights.h).
ModelShape inspect_model(const std::filesystem::path& model, model::ModelConfig& config);

}  // namespace quire::backend::cpu
