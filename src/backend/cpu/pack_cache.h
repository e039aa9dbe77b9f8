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

// Packed matrices in a file, which the next start maps instead of packing them again. The matrices lie one
// after the other, in the order in which the model asks for them, each at a page; behind them one line of
// JSON with what their bytes depend on and the sizes and the checksum of each, and at the very end where that
// line begins and its checksum.
namespace quire::backend::cpu {

/// What the bytes of packed matrices depend on: the checkpoint's files (name, size, time of the last change,
/// and of what is before the weights a checksum), its config.json, and how it is packed.
json::object pack_facts(const formats::Checkpoint& checkpoint, const WeightSetting& setting);

/// The file of a model and how its weights are kept: in `dir`, or beside the model where that is empty.
/// Models of one name have different files in one `dir`.
std::filesystem::path pack_file_path(const std::filesystem::path& dir, const std::filesystem::path& model,
                                     const WeightSetting& setting);

/// The file is whole, but has other matrices than the model asks for.
class OtherMatrices : public Error {
 public:
  using Error::Error;
};

/// Such a file, mapped or read into memory. The matrices that it gives lie in it.
class PackFile {
 public:
  /// Reads all of it once, on the context's threads, and compares the checksums. Throws Error naming file and
  /// fact if it is none, is damaged or cut off, or has other facts.
  PackFile(const std::filesystem::path& path, const json::object& facts, kernels::KernelContext& context,
           formats::FileAccess access = formats::FileAccess::kMap);

  size_t size() const { return matrices_.size(); }
  /// Bytes that are mapped; 0 where the file was read into memory.
  uint64_t mapped_bytes() const { return file_.access() == formats::FileAccess::kMap ? file_.size() : 0; }
  /// Throws OtherMatrices if the file has another matrix in this place.
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
  /// Returns where the line that tells of the matrices begins.
  uint64_t read_end() const;
  void read_line(uint64_t begin, const json::object& facts);
  void compare_sums(kernels::KernelContext& context) const;

  formats::MappedFile file_;
  std::vector<Entry> matrices_;
};

/// Writes one. Throws Error if that fails, at once where the folder cannot be written.
class PackFileWriter {
 public:
  PackFileWriter(const std::filesystem::path& path, json::object facts)
      : out_(path, 0644), facts_(std::move(facts)) {}

  /// Another process is at it; what is added is dropped.
  bool is_taken() const { return out_.is_taken(); }
  void add(const kernels::PackedMatrix& matrix, kernels::KernelContext& context);
  /// The file is there from then on.
  void finish();

 private:
  formats::FileReplacement out_;
  json::object facts_;
  json::array matrices_;
};

/// A model's packed matrices out of such a file, or packed and into it. A file that cannot be trusted or
/// written costs time only: it is logged as a warning, and the matrices are packed.
class PackCache {
 public:
  enum class Start {
    kFromFile,  // if there is one that fits
    kAnew,      // whatever is there is replaced
  };
  /// Of the model at `model`, whose owner may write its packed weights, too. Throws Error naming --pack-cache
  /// if the folder is none.
  PackCache(std::filesystem::path path, const std::filesystem::path& model, json::object facts,
            kernels::KernelContext& context, formats::FileAccess access = formats::FileAccess::kMap,
            Start start = Start::kFromFile);

  /// The next matrix of the model: `pack()` where it is not in the file. Throws OtherMatrices; then the model
  /// is to be loaded with Start::kAnew.
  kernels::PackedMatrix next(size_t n, size_t k, WeightFormat format,
                             const std::function<kernels::PackedMatrix()>& pack);
  /// All matrices have been asked for. Throws OtherMatrices.
  void finish();
  /// See PackFile.
  uint64_t mapped_bytes() const { return file_ == nullptr ? 0 : file_->mapped_bytes(); }

 private:
  void read_file(const json::object& facts, formats::FileAccess access, std::optional<uid_t> owner);
  void begin_file(json::object facts, std::optional<uid_t> owner);
  /// Nothing is kept.
  void stop_writing(const Error& why);

  std::filesystem::path path_;
  kernels::KernelContext& context_;
  std::unique_ptr<PackFile> file_;
  std::unique_ptr<PackFileWriter> writer_;
  size_t next_ = 0;
};

}  // namespace quire::backend::cpu
