#include "tests/support/failing_memory.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace quire::test {

std::atomic<size_t> failing_size = 0;
thread_local int64_t allocations_left = -1;
std::atomic<int> failed_allocations = 0;

}  // namespace quire::test

#if QUIRE_ALLOCATIONS_FAIL
namespace {

void* allocate(size_t size, size_t alignment) {
  if (quire::test::allocations_left == 0 || (size != 0 && size == quire::test::failing_size)) {
    ++quire::test::failed_allocations;
    throw std::bad_alloc();
  }
  if (quire::test::allocations_left > 0) --quire::test::allocations_left;
  const size_t whole = (std::max<size_t>(size, 1) + alignment - 1) / alignment * alignment;
  if (void* memory = std::aligned_alloc(alignment, whole)) return memory;
  throw std::bad_alloc();
}

}  // namespace

// Not inlined, or GCC 12 takes the pairs for mismatched.
[[gnu::noinline]] void* operator new(size_t size) { return allocate(size, alignof(std::max_align_t)); }
[[gnu::noinline]] void* operator new(size_t size, std::align_val_t alignment) {
  return allocate(size, static_cast<size_t>(alignment));
}
// Its memory goes to the delete below as well (std::stable_sort's buffer); it does not fail.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
#endif
