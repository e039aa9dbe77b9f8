#include "formats/mapped_file.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_error.h"
#include "formats/mapping_registry.h"

namespace quire::formats {
namespace {

constexpr size_t kMostReadAtOnce = size_t{64} << 20;  // bytes of one read
constexpr int kReaderPatienceMs = 1000;

Error system_error(const std::filesystem::path& path, int code) {
  return file_error(path, std::generic_category().message(code));
}

uintptr_t page_size() {
  static const auto size = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  return size;
}

/// Closes what it holds.
struct Descriptor {
  int file;
  ~Descriptor() {
    if (file >= 0) close(file);
  }
};

/// Memory with all of the file's bytes.
void* read_all(int file, uint64_t size, const std::filesystem::path& path) {
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw file_error(path, fmt::format("no memory for its {} bytes (--no-mmap needs it)", size));
  }
  for (uint64_t at = 0; at < size;) {
    const ssize_t got = pread(file, static_cast<std::byte*>(memory) + at,
                              std::min<uint64_t>(size - at, kMostReadAtOnce), static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) {
      const int failed = errno;
      munmap(memory, size);
      throw got < 0 ? system_error(path, failed)
                    : file_error(path, at, "the file was truncated while it was read");
    }
    at += static_cast<uint64_t>(got);
  }
  mprotect(memory, size, PROT_READ);
  return memory;
}

// What follows runs in a signal handler: only async-signal-safe calls.

struct sigaction former_sigbus;

void write_line(const char* path) {
  const char* parts[] = {"quire: ", path,
                         ": a part of it is no longer readable: the file was truncated while it was mapped, "
                         "or its disk fails (--no-mmap copies files into memory at the start)\n"};
  iovec line[3];
  for (size_t i = 0; i < 3; ++i) line[i] = {const_cast<char*>(parts[i]), std::strlen(parts[i])};
  pollfd reader{STDERR_FILENO, POLLOUT, 0};
  if (poll(&reader, 1, kReaderPatienceMs) > 0) static_cast<void>(!writev(STDERR_FILENO, line, 3));
}

void on_sigbus(int, siginfo_t* info, void*) {
  static std::atomic_flag told = ATOMIC_FLAG_INIT;
  if (const char* path = mapped_path_at(info->si_addr)) {
    while (told.test_and_set()) pause();  // another thread is about to end the program
    signal(SIGPIPE, SIG_IGN);
    write_line(path);
    _exit(1);
  }
  sigaction(SIGBUS, &former_sigbus, nullptr);  // the same instruction faults again
}

}  // namespace

MappedFile::MappedFile(std::filesystem::path path, FileAccess access)
    : path_(std::move(path)), access_(access) {
  const Descriptor opened{open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (opened.file < 0) throw system_error(path_, errno);
  struct stat facts {};
  if (fstat(opened.file, &facts) != 0) throw system_error(path_, errno);
  if (!S_ISREG(facts.st_mode)) throw file_error(path_, "not a regular file");
  if (facts.st_size <= 0) throw file_error(path_, "empty");
  size_ = static_cast<uint64_t>(facts.st_size);
  modified_ = int64_t{facts.st_mtim.tv_sec} * 1'000'000'000 + facts.st_mtim.tv_nsec;
  void* memory = nullptr;
  if (access_ == FileAccess::kRead) {
    memory = read_all(opened.file, size_, path_);
  } else {
    memory = mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, opened.file, 0);
    if (memory == MAP_FAILED) throw system_error(path_, errno);
  }
  data_ = static_cast<const std::byte*>(memory);
  try {
    if (access_ == FileAccess::kMap) add_mapping(data_, size_, path_.native());
    refuse_lfs_pointer(path_, {static_cast<const char*>(memory), size_});
  } catch (...) {
    unmap();
    throw;
  }
}

MappedFile::~MappedFile() { unmap(); }

void MappedFile::unmap() {
  if (data_ == nullptr) return;
  if (access_ == FileAccess::kMap) remove_mapping(data_);
  munmap(const_cast<std::byte*>(data_), size_);
  data_ = nullptr;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      access_(other.access_),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      modified_(other.modified_) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(access_, other.access_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(modified_, other.modified_);
  return *this;
}

void MappedFile::release_pages(const std::byte* data, size_t bytes) const {
  if (access_ != FileAccess::kMap) return;
  const auto first = reinterpret_cast<uintptr_t>(data);
  const auto begin = (first + page_size() - 1) / page_size() * page_size();
  const auto end = (first + bytes) / page_size() * page_size();
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_DONTNEED);
}

void prefetch_pages(const std::byte* data, size_t bytes) {
  const auto begin = reinterpret_cast<uintptr_t>(data) / page_size() * page_size();
  const auto end = reinterpret_cast<uintptr_t>(data) + bytes;
  madvise(reinterpret_cast<void*>(begin), end - begin, MADV_WILLNEED);
}

void report_lost_mappings() {
  struct sigaction action {};
  action.sa_sigaction = on_sigbus;
  action.sa_flags = SA_SIGINFO;
  sigemptyset(&action.sa_mask);
  sigaction(SIGBUS, &action, &former_sigbus);
}

}  // namespace quire::formats
