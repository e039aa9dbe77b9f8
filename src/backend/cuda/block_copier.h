#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "backend/cuda/kv_cache.h"
#include "backend/cuda/runtime.h"
#include "backend/cuda/staging.h"
#include "control/step.h"

namespace quire::backend::cuda {

/// Copies blocks within the device's K/V, all their parts at once. All memory is allocated by the
/// constructor. Not thread-safe.
class BlockCopier {
 public:
  /// `cache` must outlive it. `most`: copies that one launch makes, at least 1; a step has mostly no more
  /// than one for each sequence and K/V group. Throws Error if there is too little memory.
  BlockCopier(const KvCache& cache, uint32_t most);

  /// As if one after the other. By one launch, unless there are more than `most`, or one writes a block that
  /// one before it reads or writes, or reads what one before it writes: a block may be evicted in the plan
  /// that has copied it, and be the copy of another.
  void copy(std::span<const control::BlockCopy> copies, Stream stream);

 private:
  size_t num_independent(std::span<const control::BlockCopy> copies);

  const KvCache& cache_;
  size_t most_;
  Staging staging_;
  DeviceBuffer pairs_;
  uint64_t launch_ = 0;
  // By block: the last launch that reads or writes it.
  std::vector<uint64_t> read_;
  std::vector<uint64_t> written_;
};

}  // namespace quire::backend::cuda
