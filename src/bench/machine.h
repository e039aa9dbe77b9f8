#pragma once

#include <cstdint>

#include "backend/machine.h"
#include "base/thread_pool.h"
#include "kernels/context.h"
#include "tensor/weight_format.h"

// The machine that a command runs on.
namespace quire::bench {

/// The peak rates of the machine at this moment with all threads of a pool.
struct Peaks {
  double flops = 0;  // per second, with the level's best multiply-add for a format; 0: unknown
  double bytes = 0;  // read from memory per second
};
/// The best of several short measurements each. Holds half a GiB of memory from the first call on; the
/// caller's `pool` must be idle.
Peaks probe_peaks(ThreadPool& pool, kernels::IsaLevel level, WeightFormat format);

/// The peak rates for all formats of weights, as probe_peaks measures them, in less than a second.
backend::MachineSpeed probe_speed(ThreadPool& pool, kernels::IsaLevel level);
/// The memory that the probes hold.
inline constexpr uint64_t kProbeBytes = uint64_t{512} << 20;

}  // namespace quire::bench
