#include "base/json_memory.h"

#include <algorithm>
#include <new>

namespace quire {
namespace {

constexpr size_t kOwn = 32 << 10;  // from this size on, a piece is allocated from the system separately
constexpr size_t kLargestBlock = 1 << 20;  // the allocator returns it to the system when it is freed

}  // namespace

JsonMemory::~JsonMemory() {
  for (void* block : blocks_) ::operator delete(block);
}

void* JsonMemory::take(size_t bytes) {
  if (bytes > max_bytes_ - used_) throw JsonTooLarge();
  void* memory = ::operator new(bytes);
  used_ += bytes;
  return memory;
}

void* JsonMemory::do_allocate(size_t bytes, size_t alignment) {
  if (alignment > alignof(std::max_align_t)) throw std::bad_alloc();
  if (bytes >= kOwn) return take(bytes);
  const size_t size = (bytes + alignof(std::max_align_t) - 1) & ~(alignof(std::max_align_t) - 1);
  if (size > num_free_) {
    blocks_.reserve(blocks_.size() + 1);  // nothing may throw between allocating a chunk and storing it
    const size_t block = std::max(size, next_block_);
    free_ = static_cast<std::byte*>(take(block));
    num_free_ = block;
    blocks_.push_back(free_);
    next_block_ = std::min(2 * next_block_, kLargestBlock);
  }
  num_free_ -= size;
  return free_ + num_free_;
}

void JsonMemory::do_deallocate(void* memory, size_t bytes, size_t) {
  if (bytes < kOwn) return;
  ::operator delete(memory);
  used_ -= bytes;
}

}  // namespace quire
