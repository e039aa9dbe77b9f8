#include "tensor/buffer.h"

#include <algorithm>
#include <cstdint>
#include <mutex>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/thread_pool.h"

namespace quire {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;  // or more

size_t rounded_up(size_t bytes, size_t unit) { return (bytes + unit - 1) / unit * unit; }

/// Null if the system refuses; `wish` is where the memory should begin, if that is free.
std::byte* map(size_t bytes, std::byte* wish = nullptr) {
  void* mapped = mmap(wish, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return mapped == MAP_FAILED ? nullptr : static_cast<std::byte*>(mapped);
}

void unmap(std::byte* begin, size_t bytes) {
  if (bytes > 0) munmap(begin, bytes);
}

/// Where lasting buffers come from: one below the other, if nothing else lies there, so that a huge page
/// holds the beginning of one and the end of the next. If each was mapped alone, what lies at its ends would
/// be in small pages, a tenth of a model's weights and more.
class LastingBuffers {
 public:
  /// `bytes`: whole pages of the system. Null if the system refuses.
  std::byte* take(size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > left_ && !extend(bytes - left_) && !begin_anew(bytes)) return nullptr;
    left_ -= bytes;
    return begin_ + left_;
  }

 private:
  /// Downwards, as the system itself maps.
  bool extend(size_t missing) {
    const size_t more = rounded_up(missing, kHugePage);
    if (begin_ == nullptr || more > reinterpret_cast<uintptr_t>(begin_)) return false;
    std::byte* wish = begin_ - more;
    std::byte* mapped = map(more, wish);
    if (mapped == nullptr) return false;
    if (mapped != wish) {
      unmap(mapped, more);
      return false;
    }
    begin_ = mapped;
    left_ += more;
    madvise(mapped, more, MADV_HUGEPAGE);
    return true;
  }
  bool begin_anew(size_t bytes) {
    const size_t whole = rounded_up(bytes, kHugePage);
    std::byte* mapped = map(whole + kHugePage);
    if (mapped == nullptr) return false;
    const size_t before =
        rounded_up(reinterpret_cast<uintptr_t>(mapped), kHugePage) - reinterpret_cast<uintptr_t>(mapped);
    unmap(mapped, before);
    unmap(mapped + before + whole, kHugePage - before);
    unmap(begin_, left_);
    begin_ = mapped + before;
    left_ = whole;
    madvise(begin_, whole, MADV_HUGEPAGE);
    return true;
  }

  std::mutex mutex_;
  std::byte* begin_ = nullptr;  // of what is mapped and not taken yet: a multiple of kHugePage
  size_t left_ = 0;
};

constinit LastingBuffers lasting_buffers;

}  // namespace

Buffer::Buffer(size_t bytes) {
  if (bytes == 0) return;
  data_ = map(bytes);
  if (data_ == nullptr) throw Error(fmt::format("out of memory: {} bytes cannot be allocated", bytes));
  if (bytes >= kHugePage) madvise(data_, bytes, MADV_HUGEPAGE);
  size_ = bytes;
}

Buffer Buffer::lasting(size_t bytes) {
  // What cannot be is not rounded up, which might wrap around.
  if (bytes == 0 || bytes > SIZE_MAX / 2) return Buffer(bytes);
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  std::byte* data = lasting_buffers.take(rounded_up(bytes, page));
  if (data == nullptr) return Buffer(bytes);  // for which there may just be room
  Buffer made;
  made.data_ = data;
  made.size_ = bytes;
  return made;
}

Buffer::~Buffer() { unmap(data_, size_); }

Buffer::Buffer(Buffer&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

Buffer& Buffer::operator=(Buffer&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void Buffer::reserve(size_t bytes) {
  if (bytes > size_) *this = Buffer(std::max(bytes, size_ + size_ / 2));
}

void touch(ThreadPool& pool, std::span<std::byte> bytes) {
  // A thread takes a whole huge page: a second one would only wait until the first has cleared it.
  const size_t before = reinterpret_cast<uintptr_t>(bytes.data()) % kHugePage;
  const size_t pages = (before + bytes.size() + kHugePage - 1) / kHugePage;
  pool.parallel_for(pages, 1, [&](size_t begin, size_t end, uint32_t) {
    const size_t first = begin == 0 ? 0 : begin * kHugePage - before;
    const size_t last = std::min(end * kHugePage - before, bytes.size());
    for (size_t at = first; at < last; at += kPage) {
      volatile std::byte& byte = bytes[at];
      byte = byte;
    }
  });
}

}  // namespace quire
