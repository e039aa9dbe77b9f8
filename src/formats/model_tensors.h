#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "formats/checkpoint.h"
#include "model/config.h"
#include "model/families.h"

// The tensors that a model has, and whether a checkpoint has them.
namespace quire::formats {

/// The names of the tensors in one checkpoint.
struct TensorNames {
  const model::ModelTensors& tensors;
  const model::TensorRoot& root;

  std::string of(std::string_view tensor) const;
  std::string head(bool tied) const;
  /// The name of a layer's tensor, without ".weight" or ".bias".
  std::string layer(uint32_t index, std::string_view tensor) const;
  std::string expert(uint32_t index, uint32_t expert, std::string_view tensor) const;
};

/// The names in `file`; without a file, those that the family's checkpoints usually have.
TensorNames names_of(const model::ModelConfig& config, const Checkpoint* file);

/// A tensor that a model of this config must have.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// All tensors, each once, under the names that the family's checkpoints usually have. Includes fused
/// matrices if the family stores them fused.
std::vector<ExpectedTensor> expected_tensors(const model::ModelConfig& config);
/// The same under the names in this checkpoint, among the known names of the family.
std::vector<ExpectedTensor> expected_tensors(const model::ModelConfig& config, const Checkpoint& file);

/// If the config ties the head to the embeddings but the file has a head that differs from them, the model
/// uses that head, as in transformers: logs a warning and sets tie_embeddings to false. Reads both tensors if
/// both exist.
void settle_head(model::ModelConfig& config, const Checkpoint& file);

/// Checks that the tensors exist, with the expected shapes, and are floating-point; a GGUF file must have no
/// others. Throws Error "FILE: tensor 'x' has shape [..], expected [..]".
void check_tensors(const model::ModelConfig& config, const Checkpoint& file);

/// Logs a warning about tensors in `file` that the model does not use.
void warn_of_unused(const model::ModelConfig& config, const Checkpoint& file);

}  // namespace quire::formats
