#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "base/output_file.h"
#include "tensor/dtype.h"

namespace quire::formats {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// Writes a safetensors file whose data arrives in pieces, so that it is never in memory as a whole. The file
/// appears under its name when it is complete, as a GrowingFile.
class SafetensorsWriter {
 public:
  /// Writes the header. Throws Error on I/O failure.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  /// The next bytes of the data, with the tensors in the order given. Throws Error on I/O failure.
  void append(std::span<const std::byte> bytes);
  /// Throws Error if not exactly the promised bytes were appended, or on I/O failure.
  void finish();

 private:
  std::filesystem::path path_;
  GrowingFile out_;
  uint64_t expected_ = 0;
  uint64_t written_ = 0;
};

}  // namespace quire::formats
