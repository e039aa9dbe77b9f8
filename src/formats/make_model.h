#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

namespace quire::formats {

/// The shapes that make_model knows: "tiny", "llama-3.2-1b", ...
std::vector<std::string> model_shape_names();

/// Writes a Hugging Face directory of the named shape with random bf16 weights, for benchmarks and tests: the
/// same bytes for the same seed. Its tokenizer has the right number of entries and encodes any text, one
/// token per byte. The weights are written to the disk as they are generated. `out_dir` is created if needed.
/// Throws Error if the shape is unknown or the files cannot be written.
void make_model(std::string_view shape, const std::filesystem::path& out_dir, uint64_t seed);

}  // namespace quire::formats
