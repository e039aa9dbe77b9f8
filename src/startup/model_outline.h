#pragma once

#include <memory>
#include <optional>
#include <string>

#include "backend/cpu/inspect.h"
#include "backend/model_shape.h"
#include "formats/checkpoint.h"
#include "model/config.h"
#include "tensor/weight_format.h"

// What is known of a model without loading its weights, which need not be there.
namespace quire::startup {

struct ModelOutline {
  std::string path;  // a directory or a GGUF file
  model::ModelConfig config;
  backend::ModelShape shape;                  // K/V in the config's dtype
  std::unique_ptr<formats::Checkpoint> file;  // null: the weights are not here
  std::optional<std::string> absent;          // why not: "model.safetensors is a Git LFS pointer"
};

/// `path`: as checked_model takes it, or the config.json of a directory. Checks the weights, if they are
/// there, against the config. Throws Error with file and key or tensor; damaged weights are not absent.
ModelOutline outline_of(const std::string& path);

/// The outline as `quire serve --dtype` would compute it. Throws Error if `dtype` is not one of its values.
void set_compute_type(ModelOutline& model, const std::string& dtype);

/// The formats of the weights as they are stored, those with most bytes first: "Q4_K, Q6_K, F32". Without
/// weights, the config's dtype.
std::string stored_formats(const ModelOutline& model);

/// The weights in memory as `quire serve --quantization` would have them. Throws Error if `quantization` is
/// not one of its values.
backend::cpu::WeightSizes weight_sizes(const ModelOutline& model, const std::string& quantization);

/// The shape with K/V as `quire serve --kv-cache-dtype` would have it. Throws Error like weight_sizes.
backend::ModelShape shape_with_kv(const ModelOutline& model, const std::string& kv_cache_dtype);

}  // namespace quire::startup
