#include "tensor/buffer.h"

#include <algorithm>
#include <sys/mman.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/thread_pool.h"

namespace quire {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kPage = 4096;

}  // namespace

Buffer::Buffer(size_t bytes) {
  if (bytes == 0) return;
  void* mapped = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) throw Error(fmt::format("out of memory: {} bytes cannot be allocated", bytes));
  if (bytes >= kHugePage) madvise(mapped, bytes, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(mapped);
  size_ = bytes;
}

Buffer::~Buffer() {
  if (data_ != nullptr) munmap(data_, size_);
}

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
