#pragma once

#include <filesystem>

#include "base/model_shape.h"
#include "model/config.h"

namespace quire {

/// The shape that follows from a config alone; weight_bytes as if all weights were of its dtype.
ModelShape model_shape(const ModelConfig& config, DType kv_dtype);

/// The shape of a model (a directory or a GGUF file), weights checked but not loaded; K/V in the checkpoint's
/// dtype. Throws Error with file and key or tensor.
ModelShape inspect_model(const std::filesystem::path& model);
/// The same of one whose config is loaded already: settles its head (weights.h).
ModelShape inspect_model(const std::filesystem::path& model, ModelConfig& config);

}  // namespace quire
