#pragma once

#include <filesystem>

#include "base/sampling_params.h"
#include "model/config.h"

// What a model says of itself, whether it is a Hugging Face directory or a GGUF file.
namespace quire::formats {

/// Reads config.json and generation_config.json of a Hugging Face directory, or what a GGUF file says
/// instead. Throws Error with file and key; an architecture or a value that cannot be honoured is named,
/// never ignored. A key that the family does not know is logged as a warning.
model::ModelConfig load_model_config(const std::filesystem::path& model);
/// What it would have where a request says nothing. Throws Error with file and key.
SamplingDefaults load_sampling_defaults(const std::filesystem::path& model);

}  // namespace quire::formats
