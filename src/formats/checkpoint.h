#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "base/thread_pool.h"
#include "formats/mapped_file.h"
#include "tensor/buffer.h"
#include "tensor/tensor.h"
#include "tensor/weight_format.h"

namespace quire::formats {

class Checkpoint;

/// A tensor whose bytes are valid while this object exists: in the checkpoint's mapped file, whose pages it
/// releases at the end, or in a copy. Move-only; must not outlive the checkpoint.
class LoadedTensor {
 public:
  LoadedTensor() = default;
  LoadedTensor(TensorView in_file, const Checkpoint& owner) : view_(std::move(in_file)), owner_(&owner) {}
  LoadedTensor(DType dtype, std::vector<int64_t> shape, Buffer copy)
      : view_{dtype, std::move(shape), copy.data()}, copy_(std::move(copy)) {}
  ~LoadedTensor() { release_pages(); }
  LoadedTensor(LoadedTensor&& other) noexcept;
  LoadedTensor& operator=(LoadedTensor&& other) noexcept;

  const TensorView& view() const { return view_; }
  /// Copies bytes that are in the checkpoint's file, so that this object may outlive the checkpoint. Throws
  /// Error if there is no memory.
  void detach();
  /// Releases its pages until they are read again, if it is in the file.
  void release_pages() const;
  /// The same for some rows of a matrix, as far as they fill pages. Thread-safe.
  void release_rows(size_t first, size_t count) const;

 private:
  TensorView view_;
  Buffer copy_;
  const Checkpoint* owner_ = nullptr;  // if the bytes are in its file
};

/// The properties of a tensor before it is loaded.
struct TensorFacts {
  std::string format;          // as in the file: "bf16", "Q4_K"
  std::optional<DType> dtype;  // nullopt: quantized, loaded as floating-point numbers
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  // in the file

  /// The WeightFormat with its quantization blocks, if it is quantized and there is one.
  std::optional<WeightFormat> blocks() const;
};

/// The place of a tensor and its name there.
struct TensorPlace {
  std::filesystem::path file;
  std::string name;
  uint64_t offset = 0;   // of its first byte
  bool verbatim = true;  // whether its elements are loaded unchanged and in order
};

/// The identity of a file with weights, to distinguish it from another file of the same name.
struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  int64_t modified = 0;     // nanoseconds since 1970
  uint64_t header_sum = 0;  // checksum of the part before the weights: their names, types and places
};

/// A model's weights by their Hugging Face names, whatever their files: the safetensors of a directory, or
/// one GGUF file, whose tensors are renamed, reordered to Hugging Face's order of rows and, if quantized,
/// expanded on loading. Immutable and thread-safe once open.
class Checkpoint {
 public:
  /// `model`: a directory or a .gguf file. Throws Error with file and offset, key or tensor name.
  static std::unique_ptr<Checkpoint> open(const std::filesystem::path& model,
                                          FileAccess access = FileAccess::kMap);
  virtual ~Checkpoint() = default;

  const std::filesystem::path& path() const { return path_; }
  /// All tensors that can be loaded, sorted by name. Tensors without a Hugging Face name have the file's
  /// name.
  const std::map<std::string, TensorFacts, std::less<>>& tensors() const { return tensors_; }
  /// Null if there is no tensor of that name. Throws Error if its format is one that quire does not read.
  virtual const TensorFacts* find(std::string_view name) const = 0;
  /// Throws Error naming the tensor and the file if absent.
  const TensorFacts& at(std::string_view name) const;
  /// Throws like at().
  virtual TensorPlace place(std::string_view name) const = 0;
  /// The Error to throw: "FILE: at byte OFFSET: tensor 'NAME IN THE FILE' WHAT".
  Error error(std::string_view name, std::string_view what) const;

  /// For a GGUF file: throws Error naming the first tensor that is not in `used`, the names of the model's
  /// tensors, because an additional tensor means that the model differs from its config. A directory may have
  /// other tensors.
  virtual void refuse_unused(const std::set<std::string, std::less<>>& used) const = 0;

  /// Loads a tensor. A quantized one is expanded and rounded to `expand_to`: f32, f16 or bf16. Throws Error
  /// naming the tensor and the file if it is absent, or if there is no memory for a copy.
  virtual LoadedTensor load(std::string_view name, DType expand_to, ThreadPool& pool) const = 0;
  /// The unchanged rows of a quantized matrix: u8 [rows, bytes of a row]. Throws like load(). REQUIRES:
  /// at(name).blocks() has a value.
  virtual LoadedTensor load_blocks(std::string_view name, ThreadPool& pool) const = 0;

  /// In an unspecified but fixed order.
  virtual std::vector<CheckpointFile> files() const = 0;

 protected:
  explicit Checkpoint(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::map<std::string, TensorFacts, std::less<>> tensors_;

 private:
  friend class LoadedTensor;
  /// The name that the file has, or would have, for a tensor with this Hugging Face name.
  virtual std::string name_in_file(std::string_view name) const { return std::string(name); }
  /// Releases the pages of a tensor in the file until they are read again.
  virtual void release(const TensorView& tensor) const = 0;
};

}  // namespace quire::formats
