#pragma once

#include <filesystem>

#include "base/sampling_params.h"
#include "model/config.h"

// The configuration of a model, from a Hugging Face directory or a GGUF file.
namespace quire::formats {

/// Reads config.json and generation_config.json of a Hugging Face directory, or the equivalent keys of a GGUF
/// file. Throws Error with file and key; an unsupported architecture or value is an error and never ignored.
/// A key that the family does not know is logged as a warning.
model::ModelConfig load_model_config(const std::filesystem::path& model);
/// The model's defaults for sampling parameters that a request omits. Throws Error with file and key.
SamplingDefaults load_sampling_defaults(const std::filesystem::path& model);

}  // namespace quire::formats
