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

/// A tensor of a GGUF file. Its bytes lie in the mapped file.
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

/// One GGUF file, version 2 or 3, memory-mapped and checked: metadata by key, and tensors whose bytes lie
/// inside the file, aligned as it says, are as many as type and shape say and overlap no other. Immutable and
/// thread-safe once open. Format: github.com/ggml-org/ggml, docs/gguf.md.
class Gguf {
 public:
  /// Throws Error with file and offset, key or tensor name.
  static Gguf open(const std::filesystem::path& path, FileAccess access = FileAccess::kMap);
  ~Gguf();
  Gguf(Gguf&&) noexcept;
  Gguf& operator=(Gguf&&) noexcept;

  const std::filesystem::path& path() const;
  /// All of the file before the tensors' bytes.
  std::span<const std::byte> header() const;
  const MappedFile& file() const;

  bool has(std::string_view key) const;
  /// Sorted.
  std::vector<std::string_view> keys() const;

  // Throw Error naming file and key if it is absent, of another type or out of range. What comes back of a
  // string lies in the mapped file.
  int64_t integer(std::string_view key, int64_t min, int64_t max) const;  // of any integer type
  /// Of any type of number, finite. An f32 comes as the shortest decimal that names it: 1e-5,
  /// not 9.99999975e-6.
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

  /// "FILE: key 'KEY': WHAT", to throw.
  Error error(std::string_view key, std::string_view what) const;

  /// Null if there is none of that name. Throws Error if there is one, of a type that quire does not read.
  const GgufTensor* find(std::string_view name) const;
  /// Throws Error naming the tensor and the file if absent.
  const GgufTensor& at(std::string_view name) const;
  /// Where in the file one of its tensors, or a part of one, begins.
  uint64_t offset_of(const GgufTensor& tensor) const;
  /// Sorted by name; those of types that are not read are among them.
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const;

 private:
  Gguf();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A file whose name ends in .gguf or that begins as one.
bool is_gguf_file(const std::filesystem::path& path);

}  // namespace quire::formats
