#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "tensor/dtype.h"

namespace quire::formats {

struct TensorSpec {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
};

/// Writes a safetensors file whose data comes piece by piece, so that it never has to be in memory at once.
/// The file appears under its name when it is whole; but a target that is there and no regular file (a pipe,
/// a device, a link) is written to as it is.
class SafetensorsWriter {
 public:
  /// Writes the header. Throws Error on I/O failure.
  SafetensorsWriter(const std::filesystem::path& path, const std::vector<TensorSpec>& tensors,
                    const std::map<std::string, std::string>& metadata = {});
  /// Removes what was written if finish() was not reached, if that is a file of its own.
  ~SafetensorsWriter();
  SafetensorsWriter(const SafetensorsWriter&) = delete;
  SafetensorsWriter& operator=(const SafetensorsWriter&) = delete;

  /// The next bytes of the data, tensors in the order given. Throws Error on I/O failure.
  void append(std::span<const std::byte> bytes);
  /// Throws Error if not exactly the promised bytes were appended, or on I/O failure.
  void finish();

 private:
  std::filesystem::path path_;
  std::filesystem::path partial_;
  std::ofstream out_;
  uint64_t expected_ = 0;
  uint64_t written_ = 0;
};

}  // namespace quire::formats
