#include "load/mapped_file.h"

#include <cerrno>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "base/error.h"

namespace quire {
namespace {

Error system_error(const std::filesystem::path& path, int code) {
  return file_error(path, std::generic_category().message(code));
}

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path) : path_(std::move(path)) {
  const int file = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file < 0) throw system_error(path_, errno);
  struct stat facts {};
  void* mapped = MAP_FAILED;
  int failed = fstat(file, &facts) == 0 ? 0 : errno;
  const bool usable = failed == 0 && S_ISREG(facts.st_mode) && facts.st_size > 0;
  if (usable) {
    mapped = mmap(nullptr, static_cast<size_t>(facts.st_size), PROT_READ, MAP_PRIVATE, file, 0);
    if (mapped == MAP_FAILED) failed = errno;
  }
  close(file);
  if (failed != 0) throw system_error(path_, failed);
  if (!usable) throw file_error(path_, S_ISREG(facts.st_mode) ? "empty" : "not a regular file");
  data_ = static_cast<const std::byte*>(mapped);
  size_ = static_cast<uint64_t>(facts.st_size);
  modified_ = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  try {
    refuse_lfs_pointer(path_, {reinterpret_cast<const char*>(data_), size_});
  } catch (...) {
    munmap(mapped, size_);
    throw;
  }
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_(other.modified_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  return *this;
}

void prefetch_pages(const std::byte* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data) / page_size() * page_size();
  const auto end = reinterpret_cast<uintptr_t>(data) + bytes;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void release_pages(const std::byte* data, size_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(data);
  const auto begin = (first + page_size() - 1) / page_size() * page_size();
  const auto end = (first + bytes) / page_size() * page_size();
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

}  // namespace quire
