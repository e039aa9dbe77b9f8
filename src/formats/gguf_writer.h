#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/output_file.h"
#include "formats/ggml_types.h"

namespace quire::formats {

/// The keys of a GGUF file to be written, in the order in which they were added.
class GgufMetadata {
 public:
  void add(std::string_view key, std::string_view value);
  void add(std::string_view key, const char* value) { add(key, std::string_view(value)); }
  void add(std::string_view key, uint32_t value);
  void add(std::string_view key, float value);
  void add(std::string_view key, bool value);
  void add(std::string_view key, const std::vector<std::string>& values);
  void add(std::string_view key, const std::vector<float>& values);
  void add(std::string_view key, const std::vector<int32_t>& values);
  /// Appends the keys of `other`.
  void append(const GgufMetadata& other);

  uint64_t count() const { return count_; }
  const std::string& bytes() const { return bytes_; }

 private:
  void key(std::string_view key, uint32_t type);

  uint64_t count_ = 0;
  std::string bytes_;
};

struct GgufTensorSpec {
  std::string name;
  const GgmlType* type = nullptr;
  std::vector<int64_t> shape;  // rows first
};

/// Writes a GGUF file of version 3 whose data arrives in pieces. The file appears under its name when it is
/// complete, as a GrowingFile.
class GgufWriter {
 public:
  /// Writes everything except the data. Throws Error on I/O failure.
  GgufWriter(const std::filesystem::path& path, const GgufMetadata& metadata,
             const std::vector<GgufTensorSpec>& tensors);
  /// The next bytes of the data, with the tensors in the order given; the bytes of one call belong to one
  /// tensor. Throws Error on I/O failure.
  void append(std::span<const std::byte> bytes);
  /// Throws Error if not exactly the promised bytes were appended, or on I/O failure.
  void finish();

 private:
  void write(std::string_view bytes);
  void pad();

  std::filesystem::path path_;
  GrowingFile out_;
  std::vector<uint64_t> sizes_;  // of the tensors
  size_t tensor_ = 0;            // index of the tensor being written
  uint64_t in_tensor_ = 0;
  uint64_t written_ = 0;  // of the file
};

}  // namespace quire::formats
