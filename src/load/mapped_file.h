#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace quire {

/// A file mapped read-only. Move-only; the memory does not move. A file that somebody truncates while it is
/// mapped ends the program when its lost pages are read, as with any mapping.
class MappedFile {
 public:
  /// Throws Error with the path if the file is absent, no regular file, empty, or cannot be mapped.
  explicit MappedFile(std::filesystem::path path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;

  const std::filesystem::path& path() const { return path_; }
  const std::byte* data() const { return data_; }
  uint64_t size() const { return size_; }
  /// When it was changed last before it was mapped, in nanoseconds since 1970.
  int64_t modified() const { return modified_; }

 private:
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  uint64_t size_ = 0;
  int64_t modified_ = 0;
};

/// Asks the system to read a range of a mapped file ahead. Only advice.
void prefetch_pages(const std::byte* data, size_t bytes);

/// Takes the whole pages of [data, data + bytes), a range of a mapped file, out of this program's resident
/// memory. They stay readable: the next access maps them again.
void release_pages(const std::byte* data, size_t bytes);

}  // namespace quire
