#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "tests/support/sanitized.h"

// The allocator of a test program that links quire_failing_memory: it fails when it is told to.

// The sanitizers have their own, and keep them.
#define QUIRE_ALLOCATIONS_FAIL (!QUIRE_SANITIZED)

namespace quire::test {

/// Allocations of exactly this size fail, in all threads; 0: none.
extern std::atomic<size_t> failing_size;
/// After so many allocations of this thread all others fail; negative: none does.
extern thread_local int64_t allocations_left;
/// How many have failed.
extern std::atomic<int> failed_allocations;

}  // namespace quire::test
