#pragma once

#include <filesystem>

namespace quire::formats {

/// Converts a llama2.c checkpoint (github.com/karpathy/llama2.c; version 0, version 1, and version 2, whose
/// int8 groups are expanded) and its tokenizer into a Hugging Face directory of f32 weights: config.json,
/// model.safetensors, tokenizer.json, tokenizer_config.json, generation_config.json. `out_dir` is created if
/// needed. Throws Error with file and offset.
void convert_llama2c(const std::filesystem::path& checkpoint, const std::filesystem::path& tokenizer,
                     const std::filesystem::path& out_dir);

}  // namespace quire::formats
