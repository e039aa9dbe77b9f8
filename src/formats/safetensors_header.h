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

/// The entry of one tensor in a safetensors header.
struct TensorEntry {
  std::string name;
  std::string dtype_text;      // as in the file, "BF16"
  std::optional<DType> dtype;  // nullopt: unsupported
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes from the start of the file
  uint64_t end = 0;
};

/// Reads and checks the header of a safetensors file with the contents `file`: sizes, dtypes, ranges that
/// fill the file without overlap or gap, and unique names. Sorted by place in the file. Throws Error with
/// `path` and the offset or the tensor's name.
std::vector<TensorEntry> parse_safetensors_header(std::span<const std::byte> file,
                                                  const std::filesystem::path& path);

/// A name from a file for a one-line message: quoted, shortened, control characters replaced.
std::string quoted_name(std::string_view name);

}  // namespace quire::formats
