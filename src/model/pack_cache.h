#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <vector>

#include "base/json.h"
#include "kernels/context.h"
#include "kernels/matmul.h"
#include "load/kept_file.h"
#include "load/mapped_file.h"
#include "model/checkpoint.h"
#include "model/weight_setting.h"

// Packed matrices in a file, which the next start maps instead of packing them again. The matrices lie one
// after the other, in the order in which the model asks for them, each at a page; behind them one line of
// JSON with what their bytes depend on and the sizes and the checksum of each, and at the very end where that
// line begins and its checksum.
namespace quire {

/// What the bytes of packed matrices depend on: the checkpoint's files (name, size, time of the last change,
/// and of what is before the weights a checksum), its config.json, and how it is packed.
json::object pack_facts(const Checkpoint& checkpoint, const WeightSetting& setting);

/// The file of a model and how its weights are kept: in `dir`, or beside the model where that is empty.
/// Models of one name have different files in one `dir`.
std::filesystem::path pack_file_path(const std::filesystem::path& dir, const std::filesystem::path& model,
                                     const WeightSetting& setting);

/// Such a file, mapped. The matrices that it gives lie in it.
class PackFile {
 public:
  /// Reads all of it once, on the context's threads, and compares the checksums. Throws Error naming file and
  /// fact if it is none, is damaged or cut off, or has other facts.
  PackFile(const std::filesystem::path& path, const json::object& facts, KernelContext& context);

  size_t size() const { return matrices_.size(); }
  /// Throws Error if the file has another matrix in this place.
  PackedMatrix matrix(size_t index, size_t n, size_t k, WeightFormat format) const;

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
  void compare_sums(KernelContext& context) const;

  MappedFile file_;
  std::vector<Entry> matrices_;
};

/// Writes one. Throws Error if that fails, at once where the folder cannot be written.
class PackFileWriter {
 public:
  PackFileWriter(const std::filesystem::path& path, json::object facts)
      : out_(path), facts_(std::move(facts)) {}

  /// Another process is at it; what is added is dropped.
  bool is_taken() const { return out_.is_taken(); }
  void add(const PackedMatrix& matrix, KernelContext& context);
  /// The file is there from then on.
  void finish();

 private:
  FileReplacement out_;
  json::object facts_;
  json::array matrices_;
};

/// A model's packed matrices out of such a file, or packed and into it.
class PackCache {
 public:
  /// Logs why a file that is there is not used. Throws Error if one is to be written and cannot.
  PackCache(std::filesystem::path path, json::object facts, KernelContext& context);

  /// The next matrix of the model: `pack()` where it is not in the file.
  PackedMatrix next(size_t n, size_t k, WeightFormat format, const std::function<PackedMatrix()>& pack);
  /// All matrices have been asked for.
  void finish();

 private:
  std::filesystem::path path_;
  KernelContext& context_;
  std::unique_ptr<PackFile> file_;
  std::unique_ptr<PackFileWriter> writer_;
  size_t next_ = 0;
};

}  // namespace quire
