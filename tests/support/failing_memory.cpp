#include "tests/support/failing_memory.h"

#include <cstdlib>
#include <new>

namespace quire::test {

std::atomic<size_t> failing_size = 0;
thread_local int64_t allocations_left = -1;
std::atomic<int> failed_allocations = 0;

}  // namespace quire::test

#if QUIRE_ALLOCATIONS_FAIL
// Not inlined, or GCC 12 takes the pairs for mismatched.
[[gnu::noinline]] void* operator new(size_t size) {
  if (quire::test::allocations_left == 0 || (size != 0 && size == quire::test::failing_size)) {
    ++quire::test::failed_allocations;
    throw std::bad_alloc();
  }
  if (quire::test::allocations_left > 0) --quire::test::allocations_left;
  if (void* memory = std::malloc(size == 0 ? 1 : size)) return memory;
  throw std::bad_alloc();
}
// Its memory goes to the delete below as well (std::stable_sort's buffer); it does not fail.
[[gnu::noinline]] void* operator new(size_t size, const std::nothrow_t&) noexcept {
  return std::malloc(size);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif
