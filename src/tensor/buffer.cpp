#include "tensor/buffer.h"

#include <algorithm>
#include <sys/mman.h>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"

namespace quire {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;

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

}  // namespace quire
