#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace quire::formats {

enum class FileAccess {
  kMap,   // pages are read from the file on access, and may be released
  kRead,  // the whole file is copied into memory at once; later changes of the file have no effect
};

/// The contents of a file, read-only: mapped, or copied into memory. Move-only; the memory does not move. If
/// a mapped file is truncated, reading its lost pages ends the program (see report_lost_mappings).
class MappedFile {
 public:
  /// Throws Error with the path if the file is absent, is not a regular file, is empty, or cannot be mapped
  /// or read.
  explicit MappedFile(std::filesystem::path path, FileAccess access = FileAccess::kMap);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  FileAccess access() const { return access_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  /// The modification time at the time of mapping, in nanoseconds since 1970.
  int64_t modified() const { return modified_; }

  /// Removes the whole pages of [data, data + bytes), a range of this file, from this program's resident
  /// memory. They stay readable: the next access maps them again. Does nothing if the file is not mapped.
  void release_pages(const std::byte* data, size_t bytes) const;

 private:
  void unmap();

  std::filesystem::path path_;
  FileAccess access_ = FileAccess::kMap;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int64_t modified_ = 0;
};

/// Advises the system to read a range of a mapped file ahead.
void prefetch_pages(const std::byte* data, size_t bytes);

/// From now on, reading a lost page of a mapped file (the file was truncated, or its disk fails) writes one
/// line that names the file to standard error and ends the program with status 1, without running
/// destructors. Any other SIGBUS ends the program as before. Call once, before other threads start.
void report_lost_mappings();

}  // namespace quire::formats
