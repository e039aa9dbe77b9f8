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

/// A tensor whose bytes are there as long as this lives: in the checkpoint's mapped file, whose memory is
/// then given back, or in a copy. Move-only; must not outlive the checkpoint.
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
  /// Copies what lies in the checkpoint's file, so that this may outlive it. Throws Error without memory.
  void detach();
  /// Gives the memory under it back until somebody reads it again, if it lies in the file.
  void release_pages() const;
  /// The same of some rows of a matrix, as far as they fill pages. Thread-safe.
  void release_rows(size_t first, size_t count) const;

 private:
  TensorView view_;
  Buffer copy_;
  const Checkpoint* owner_ = nullptr;  // of what lies in its file
};

/// What is known of a tensor before it is loaded.
struct TensorFacts {
  std::string format;          // as the file has it: "bf16", "Q4_K"
  std::optional<DType> dtype;  // nullopt: quantized, loaded as floating-point numbers
  std::vector<int64_t> shape;
  uint64_t bytes = 0;  // in the file

  /// The format of matrices that has its blocks, if it is in blocks and there is one.
  std::optional<WeightFormat> blocks() const;
};

/// Where a tensor lies and what it is called there.
struct TensorPlace {
  std::filesystem::path file;
  std::string name;
  uint64_t offset = 0;   // of its first byte
  bool verbatim = true;  // its elements are loaded as they lie there, one after the other
};

/// A file that a model's weights lie in, as told apart from another of that name.
struct CheckpointFile {
  std::string name;
  uint64_t bytes = 0;
  int64_t modified = 0;     // nanoseconds since 1970
  uint64_t header_sum = 0;  // checksum of what is before the weights: of their names, types and places
};

/// A model's weights by the names that Hugging Face gives them, whatever file they lie in: safetensors of a
/// directory, or one GGUF file, whose tensors are renamed, put in Hugging Face's order of rows and, if they
/// are quantized, expanded on the way. Immutable and thread-safe once open.
class Checkpoint {
 public:
  /// `model`: a directory or a .gguf file. Throws Error with file and offset, key or tensor name.
  static std::unique_ptr<Checkpoint> open(const std::filesystem::path& model,
                                          FileAccess access = FileAccess::kMap);
  virtual ~Checkpoint() = default;

  const std::filesystem::path& path() const { return path_; }
  /// All that can be loaded, sorted by name. Names that Hugging Face does not have are the file's own.
  const std::map<std::string, TensorFacts, std::less<>>& tensors() const { return tensors_; }
  /// Null if there is none of that name. Throws Error if there is one, in a format that quire does not read.
  virtual const TensorFacts* find(std::string_view name) const = 0;
  /// Throws Error naming the tensor and the file if absent.
  const TensorFacts& at(std::string_view name) const;
  /// Throws as at() does.
  virtual TensorPlace place(std::string_view name) const = 0;
  /// An Error to throw: "FILE: at byte OFFSET: tensor 'NAME AS THE FILE HAS IT' WHAT".
  Error error(std::string_view name, std::string_view what) const;

  /// Throws Error naming the first tensor that is not among `used`, the names that a model has, where one
  /// left over means another model than the config says: in a GGUF file. In a directory there may be others.
  virtual void refuse_unused(const std::set<std::string, std::less<>>& used) const = 0;

  /// A quantized tensor comes expanded and rounded to `expand_to`: f32, f16 or bf16. Throws Error naming the
  /// tensor and the file if absent, or if the machine has no memory for a copy.
  virtual LoadedTensor load(std::string_view name, DType expand_to, ThreadPool& pool) const = 0;
  /// The rows of a matrix of ggml's blocks as they are: u8 [rows, bytes of a row]. Throws as load() does.
  /// REQUIRES: at(name).blocks() has a value.
  virtual LoadedTensor load_blocks(std::string_view name, ThreadPool& pool) const = 0;

  /// In an order of their own.
  virtual std::vector<CheckpointFile> files() const = 0;

 protected:
  explicit Checkpoint(std::filesystem::path path) : path_(std::move(path)) {}

  std::filesystem::path path_;
  std::map<std::string, TensorFacts, std::less<>> tensors_;

 private:
  friend class LoadedTensor;
  /// What the file calls, or would call, a tensor of Hugging Face's name.
  virtual std::string name_in_file(std::string_view name) const { return std::string(name); }
  /// Gives the memory under a tensor that lies in the file back until somebody reads it again.
  virtual void release(const TensorView& tensor) const = 0;
};

}  // namespace quire::formats
