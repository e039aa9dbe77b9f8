#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <sys/types.h>
#include <vector>

#include "backend/cpu/weight_setting.h"
#include "base/json.h"
#include "formats/checkpoint.h"
#include "formats/kept_file.h"
#include "formats/mapped_file.h"
#include "kernels/context.h"
#include "kernels/matmul.h"

// Packed matrices in a file, which the next start maps instead of packing them again. The file has the
// matrices one after the other, in the order in which the model asks for them, each aligned to a page. Then
// follows one line of JSON with the facts that their bytes depend on and with the sizes and the checksum of
// each matrix. At the very end are the offset of that line and its checksum.
namespace quire::backend::cpu {

/// The facts that the bytes of packed matrices depend on: the checkpoint's files (name, size, modification
/// time, and a checksum of the part before the weights), its config.json, and how it is packed.
json::object pack_facts(const formats::Checkpoint& checkpoint, const WeightSetting& setting);

/// The path of the file for a model and a weight setting: in `dir`, or beside the model if `dir` is empty.
/// Models with the same name have different files in one `dir`.
std::filesystem::path pack_file_path(const std::filesystem::path& dir, const std::filesystem::path& model,
                                     const WeightSetting& setting);

/// The file is undamaged, but its matrices are not those that the model asks for.
class OtherMatrices : public Error {
 public:
  using Error::Error;
};

/// A file of packed matrices, mapped or read into memory. The matrices that it returns refer to it.
class PackFile {
 public:
  /// Reads all of it once, on the context's threads, and compares the checksums. Throws Error naming file and
  /// fact if it is not such a file, is damaged or cut off, or has other facts.
  PackFile(const std::filesystem::path& path, const json::object& facts, kernels::KernelContext& context,
           formats::FileAccess access = formats::FileAccess::kMap);

  size_t size() const { return matrices_.size(); }
  /// Bytes that are mapped; 0 if the file was read into memory.
  uint64_t mapped_bytes() const { return file_.access() == formats::FileAccess::kMap ? file_.size() : 0; }
  /// Throws OtherMatrices if the file has another matrix at this index.
  kernels::PackedMatrix matrix(size_t index, size_t n, size_t k, WeightFormat format) const;

 private:
  struct Entry {
    size_t n = 0;
    size_t k = 0;
    WeightFormat format = WeightFormat::kF32;
    bool finite = true;
    uint64_t sum = 0;
    uint64_t begin = 0;
    uint64_t bytes = 0;
  };
  /// Returns the offset of the line that describes the matrices.
  uint64_t read_end() const;
  void read_line(uint64_t begin, const json::object& facts);
  void compare_sums(kernels::KernelContext& context) const;

  formats::MappedFile file_;
  std::vector<Entry> matrices_;
};

/// Writes such a file. Throws Error if that fails; the constructor throws if the folder is not writable.
class PackFileWriter {
 public:
  PackFileWriter(const std::filesystem::path& path, json::object facts)
      : out_(path, 0644), facts_(std::move(facts)) {}

  /// Another process writes the file; matrices that are added are dropped.
  bool is_taken() const { return out_.is_taken(); }
  void add(const kernels::PackedMatrix& matrix, kernels::KernelContext& context);
  /// The file exists under its name from then on.
  void finish();

 private:
  formats::FileReplacement out_;
  json::object facts_;
  json::array matrices_;
};

/// A model's packed matrices: read from such a file, or packed and written to it. A file that cannot be
/// trusted or written costs only time: there is a warning in the log, and the matrices are packed.
class PackCache {
 public:
  enum class Start {
    kFromFile,  // from the file, if there is one that fits
    kAnew,      // replaces any existing file
  };
  /// For the model at `model`, whose owner may also write its packed weights. Throws Error naming
  /// --pack-cache if the folder is not a folder.
  PackCache(std::filesystem::path path, const std::filesystem::path& model, json::object facts,
            kernels::KernelContext& context, formats::FileAccess access = formats::FileAccess::kMap,
            Start start = Start::kFromFile);

  /// The next matrix of the model: `pack()` if it is not in the file. Throws OtherMatrices; then load the
  /// model with Start::kAnew.
  kernels::PackedMatrix next(size_t n, size_t k, WeightFormat format,
                             const std::function<kernels::PackedMatrix()>& pack);
  /// To be called after the last matrix. Throws OtherMatrices.
  void finish();
  /// See PackFile.
  uint64_t mapped_bytes() const { return file_ == nullptr ? 0 : file_->mapped_bytes(); }

 private:
  void read_file(const json::object& facts, formats::FileAccess access, std::optional<uid_t> owner);
  void begin_file(json::object facts, std::optional<uid_t> owner);
  /// Stops: no file is written.
  void stop_writing(const Error& why);

  std::filesystem::path path_;
  kernels::KernelContext& context_;
  std::unique_ptr<PackFile> file_;
  std::unique_ptr<PackFileWriter> writer_;
  size_t next_ = 0;
};

}  // namespace quire::backend::cpu
