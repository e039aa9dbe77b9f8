#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "formats/mapped_file.h"
#include "tensor/tensor.h"

namespace quire::formats {

/// The tensors of one `.safetensors` file or of a sharded set with its index, memory-mapped and checked:
/// every tensor has as many bytes as dtype and shape require, and together the tensors fill their file
/// without overlap or gap; a view is aligned to the size of its elements. Immutable and thread-safe once
/// open. Format: github.com/huggingface/safetensors.
class Safetensors {
 public:
  /// `path`: a .safetensors file, a model.safetensors.index.json, or a directory with either.
  /// Throws Error with file and offset or tensor name.
  static Safetensors open(const std::filesystem::path& path, FileAccess access = FileAccess::kMap);
  ~Safetensors();
  Safetensors(Safetensors&&) noexcept;
  Safetensors& operator=(Safetensors&&) noexcept;

  /// Null if there is no tensor of that name. Throws Error if its dtype is one that quire does not read.
  const TensorView* find(std::string_view name) const;
  /// Throws Error naming the tensor and the files if absent.
  const TensorView& at(std::string_view name) const;
  /// Sorted by name.
  const std::map<std::string, TensorView, std::less<>>& tensors() const;
  uint64_t total_bytes() const;

  /// The files with the tensors, and for each file the part before the tensors.
  const std::vector<MappedFile>& files() const;
  std::span<const std::byte> header(size_t file) const;

  struct Place {
    std::filesystem::path file;
    uint64_t offset = 0;  // of the tensor's first byte
  };
  /// The place of a tensor, which must exist.
  Place place(std::string_view name) const;

  /// Releases the pages of one of its tensors until they are read again, if the file is mapped.
  void release(const TensorView& tensor) const;

 private:
  Safetensors();
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

struct NamedTensor {
  std::string name;
  TensorView tensor;
};

/// Writes one file, tensors in the order given and without gaps, as the format requires; the first is aligned
/// to 64 bytes. Throws Error on I/O failure.
void write_safetensors(const std::filesystem::path& path, const std::vector<NamedTensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace quire::formats
