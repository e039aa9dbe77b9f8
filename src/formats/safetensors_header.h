#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "tensor/dtype.h"

namespace quire::formats {

/// What a safetensors header says of one tensor.
struct TensorEntry {
  std::string name;
  std::string dtype_text;      // as the file has it, "BF16"
  std::optional<DType> dtype;  // nullopt: one that quire does not read
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

/// Reads and checks the header of a safetensors file of which `file` is the whole content: sizes, dtypes,
/// ranges that fill the file with neither overlap nor hole, no name twice. Sorted by place in the file.
/// Throws Error with `path` and the offset or the tensor's name.
std::vector<TensorEntry> parse_safetensors_header(std::span<const std::byte> file,
                                                  const std::filesystem::path& path);

/// A name out of a file, made fit for a one-line message: quoted, shortened, control characters replaced.
std::string quoted_name(std::string_view name);

}  // namespace quire::formats
