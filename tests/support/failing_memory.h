#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

// The allocator of a test program that links quire_failing_memory: it fails when it is told to.

// The sanitizers have their own, and keep them.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define QUIRE_ALLOCATIONS_FAIL 0
#else
#define QUIRE_ALLOCATIONS_FAIL 1
#endif

namespace quire::test {

/// Allocations of exactly this size fail, in all threads; 0: none.
extern std::atomic<size_t> failing_size;
/// After so many allocations of this thread all others fail; negative: none does.
extern thread_local int64_t allocations_left;
/// How many have failed.
extern std::atomic<int> failed_allocations;

}  // namespace quire::test
