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

/// The names of one checkpoint's tensors, of its family's.
struct TensorNames {
  const model::ModelTensors& tensors;
  const model::TensorRoot& root;

  std::string of(std::string_view tensor) const;
  std::string head(bool tied) const;
  /// Of a layer, without ".weight" or ".bias".
  std::string layer(uint32_t index, std::string_view tensor) const;
  std::string expert(uint32_t index, uint32_t expert, std::string_view tensor) const;
};

/// Those of `file`, or else those that the family's checkpoints usually have.
TensorNames names_of(const model::ModelConfig& config, const Checkpoint* file);

/// A tensor that a model of this config must have.
struct ExpectedTensor {
  std::string name;
  std::vector<int64_t> shape;
};

/// All of them, each once, under the names that the family's checkpoints usually have. Where a family stores
/// fused matrices, those.
std::vector<ExpectedTensor> expected_tensors(const model::ModelConfig& config);
/// The same under the names that this checkpoint has, of those that the family is known to have.
std::vector<ExpectedTensor> expected_tensors(const model::ModelConfig& config, const Checkpoint& file);

/// Where the config ties the head to the embeddings but the file has a head of its own that differs from
/// them, that head is the model's, as it is to transformers: logs a warning and sets tie_embeddings to false.
/// Reads both if there are both.
void settle_head(model::ModelConfig& config, const Checkpoint& file);

/// The tensors are there, with the shapes expected, floating-point; in a GGUF file no others are. Throws
/// Error "FILE: tensor 'x' has shape [..], expected [..]".
void check_tensors(const model::ModelConfig& config, const Checkpoint& file);

/// Logs a warning of tensors in `file` that the model has no use for.
void warn_of_unused(const model::ModelConfig& config, const Checkpoint& file);

}  // namespace quire::formats
