#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "formats/ggml_types.h"
#include "formats/mapped_file.h"

namespace quire::formats {

/// The types of GGUF metadata, by their numbers in the file.
enum class GgufType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64,
};

/// A tensor of a GGUF file. Its bytes are in the mapped file.
struct GgufTensor {
  std::string name;
  const GgmlType* type = nullptr;
  std::vector<int64_t> shape;  // rows first: [vocab, hidden], the reverse of the file's order
  const std::byte* data = nullptr;
  uint64_t bytes = 0;

  int64_t row_values() const { return shape.empty() ? 1 : shape.back(); }
  uint64_t row_bytes() const {
    return static_cast<uint64_t>(row_values()) / type->block_values * type->block_bytes;
  }
};

/// One GGUF file, version 2 or 3, memory-mapped and checked: metadata by key, and tensors. The bytes of each
/// tensor are inside the file, aligned as the file says, as many as type and shape require, and do not
/// overlap. Immutable and thread-safe once open. Format: github.com/ggml-org/ggml, docs/gguf.md.
class Gguf {
 public:
  /// Throws Error with file and offset, key or tensor name.
  static Gguf open(const std::filesystem::path& path, FileAccess access = FileAccess::kMap);
  ~Gguf();
  Gguf(Gguf&&) noexcept;
  Gguf& operator=(Gguf&&) noexcept;

  const std::filesystem::path& path() const;
  /// The part of the file before the tensors' bytes.
  std::span<const std::byte> header() const;
  const MappedFile& file() const;

  bool has(std::string_view key) const;
  /// Sorted.
  std::vector<std::string_view> keys() const;

  // Throw Error naming file and key if the key is absent, of another type or out of range. Returned strings
  // refer to the mapped file.
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;  // of any integer type
  /// Any type of number, finite. An f32 is returned as the shortest decimal that identifies it: 1e-5, not
  /// 9.99999975e-6.
  double number(std::string_view key) const;
  bool boolean(std::string_view key) const;
  std::string_view string(std::string_view key) const;
  bool is_array(std::string_view key) const;
  std::vector<int64_t> integers(std::string_view key) const;  // an array of any integer type
  std::vector<float> floats(std::string_view key) const;      // an array of f32 or f64
  std::vector<std::string_view> strings(std::string_view key) const;

  int64_t integer_or(std::string_view key, int64_t otherwise, int64_t min, int64_t max) const;
  double number_or(std::string_view key, double otherwise) const;
  bool boolean_or(std::string_view key, bool otherwise) const;
  std::string_view string_or(std::string_view key, std::string_view otherwise) const;

  /// The Error to throw: "FILE: key 'KEY': WHAT".
  Error error(std::string_view key, std::string_view what) const;

  /// Null if there is no tensor of that name. Throws Error if its type is one that quire does not read.
  const GgufTensor* find(std::string_view name) const;
  /// Throws Error naming the tensor and the file if absent.
  const GgufTensor& at(std::string_view name) const;
  /// The offset in the file of one of its tensors, or of a part of one.
  uint64_t offset_of(const GgufTensor& tensor) const;
  /// Sorted by name; includes those of unsupported types.
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const;

 private:
  Gguf();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// Whether the file's name ends in .gguf, or its contents begin like a GGUF file.
bool is_gguf_file(const std::filesystem::path& path);

}  // namespace quire::formats
