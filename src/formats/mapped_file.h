#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace quire::formats {

enum class FileAccess {
  kMap,   // pages come from the file when they are read, and may be given back
  kRead,  // all of the file is copied into memory at once: nothing that happens to it later matters
};

/// The contents of a file, read-only: mapped, or copied into memory. Move-only; the memory does not move.
/// Where somebody truncates a mapped file, reading its lost pages ends the program (see
/// report_lost_mappings).
class MappedFile {
 public:
  /// Throws Error with the path if the file is absent, no regular file, empty, or cannot be mapped or read.
  explicit MappedFile(std::filesystem::path path, FileAccess access = FileAccess::kMap);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  FileAccess access() const { return access_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  /// When it was changed last before it was mapped, in nanoseconds since 1970.
  int64_t modified() const { return modified_; }

  /// Takes the whole pages of [data, data + bytes), a range of this file, out of this program's resident
  /// memory. They stay readable: the next access maps them again. Of a file that is not mapped, does nothing.
  void release_pages(const std::byte* data, size_t bytes) const;

 private:
  void unmap();

  std::filesystem::path path_;
  FileAccess access_ = FileAccess::kMap;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int64_t modified_ = 0;
};

/// Asks the system to read a range of a mapped file ahead. Only advice.
void prefetch_pages(const std::byte* data, size_t bytes);

/// From here on, reading a page of a mapped file that the file has lost (somebody truncated it, or its disk
/// fails) writes one line that names the file to standard error and ends the program with status 1, without
/// running destructors. Any other SIGBUS ends it as before. Once, before other threads start.
void report_lost_mappings();

}  // namespace quire::formats
