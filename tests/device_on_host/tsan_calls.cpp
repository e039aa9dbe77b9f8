#include <cstddef>
#include <cstdint>

#include "tests/device_on_host/device.h"

// g++ -fsanitize=thread puts one of these calls before each access to memory that may be shared. In the .cu
// sources they come to the device's checkers; GCC's own library, which would answer them, is not linked. What
// else is compiled so and runs outside of kernels (inline functions that the linker has merged) is let pass.
namespace {

using quire::test::fibers::BlockRun;
using quire::test::fibers::Device;

inline void note(const void* address, size_t bytes, bool write, const void* code) {
  if (BlockRun::running == nullptr) return;
  Device::current()->on_access(
      {reinterpret_cast<uintptr_t>(address), static_cast<uint32_t>(bytes), write, code});
}

/// Of a range there is no natural multiple: it is seen byte by byte.
inline void note_range(const void* address, size_t bytes, bool write, const void* code) {
  for (size_t i = 0; i < bytes; ++i) note(static_cast<const char*>(address) + i, 1, write, code);
}

}  // namespace

extern "C" {

void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}

#define QUIRE_TSAN_CALLS(bytes)                                                                            \
  void __tsan_read##bytes(const void* p) { note(p, bytes, false, __builtin_return_address(0)); }           \
  void __tsan_write##bytes(const void* p) { note(p, bytes, true, __builtin_return_address(0)); }           \
  void __tsan_unaligned_read##bytes(const void* p) { note(p, bytes, false, __builtin_return_address(0)); } \
  void __tsan_unaligned_write##bytes(const void* p) { note(p, bytes, true, __builtin_return_address(0)); }

QUIRE_TSAN_CALLS(1)
QUIRE_TSAN_CALLS(2)
QUIRE_TSAN_CALLS(4)
QUIRE_TSAN_CALLS(8)
QUIRE_TSAN_CALLS(16)

void __tsan_read_range(const void* p, size_t bytes) {
  note_range(p, bytes, false, __builtin_return_address(0));
}
void __tsan_write_range(const void* p, size_t bytes) {
  note_range(p, bytes, true, __builtin_return_address(0));
}
void __tsan_vptr_update(void**, void*) {}

}  // extern "C"
