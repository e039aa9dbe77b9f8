#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/rng.h"
#include "tests/device_on_host/memory.h"

namespace quire::test::fibers {

/// A copy from global to shared memory that a thread has begun and not waited for.
struct AsyncCopy {
  std::byte* to = nullptr;
  const std::byte* from = nullptr;
  uint32_t bytes = 0;
  const void* code = nullptr;  // behind the call
  uint16_t thread = 0;
  uint32_t group = 0;  // of the thread's
  bool landed = false;
};

/// The copies of the block that runs. The bytes of each land when it begins, when its thread begins or
/// commits later ones, or when it is waited for: a seed decides.
class AsyncCopies {
 public:
  /// Forgets all.
  void enter_block(const Region& shared, uint32_t threads);
  void begin(AsyncCopy copy, SplitMix64& rng);
  void commit(uint16_t thread, SplitMix64& rng);
  /// Ends the copies of all groups of the thread but the last `but`, and returns them. Their bytes have
  /// landed.
  std::vector<AsyncCopy> wait(uint16_t thread, uint32_t but);
  /// Whether a copy to one of these bytes has not been waited for.
  bool are_under_way(uintptr_t address, size_t bytes) const;
  /// The copies that nobody has waited for.
  std::vector<AsyncCopy> rest() const;

 private:
  struct OfThread {
    std::vector<AsyncCopy> copies;  // by group
    uint32_t committed = 0;         // groups
  };
  static void land(AsyncCopy& copy);
  void land_some(OfThread& own, SplitMix64& rng);
  void mark(const AsyncCopy& copy, bool under_way);

  uintptr_t shared_ = 0;
  std::vector<uint8_t> under_way_;  // by byte of shared memory
  size_t count_ = 0;
  std::vector<OfThread> threads_;
};

}  // namespace quire::test::fibers
