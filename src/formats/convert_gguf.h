#pragma once

#include <filesystem>
#include <optional>

#include "formats/gguf_writer.h"
#include "model/config.h"
#include "tensor/dtype.h"

namespace quire::formats {

/// Writes config.json, generation_config.json and model.safetensors of a GGUF file's model to `out_dir`,
/// which is created if needed. Matrices are converted to `dtype` (nullopt: the file's, bf16 if it is
/// quantized), vectors only if that changes none of their values. Throws Error with file and key or tensor.
void gguf_to_directory(const std::filesystem::path& gguf, const std::filesystem::path& out_dir,
                       std::optional<DType> dtype);

/// Writes the model of a Hugging Face directory as a GGUF file, as llama.cpp's converter does: vectors in
/// F32, matrices in `type` (F32, F16, BF16 or Q8_0; F16 instead of Q8_0 if rows are not whole quantization
/// blocks). `config`: that of the directory, with its head determined (weights.h). `tokenizer`: the keys to
/// write besides those of the model. Throws Error with file and key or tensor.
void directory_to_gguf(const std::filesystem::path& dir, model::ModelConfig config,
                       const std::filesystem::path& out, const GgmlType& type, const GgufMetadata& tokenizer);

}  // namespace quire::formats
