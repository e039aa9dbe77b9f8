#pragma once

#include <string>

#include "base/thread_pool.h"
#include "kernels/context.h"
#include "tensor/weight_format.h"

// The machine that a command runs on.
namespace quire::bench {

/// "2 cores of Intel(R) Xeon(R) ..., Linux": the machine of published figures.
std::string machine_name();

/// The peak rates of the machine at this moment with all threads of a pool.
struct Peaks {
  double flops = 0;  // per second, with the level's best multiply-add for a format; 0: unknown
  double bytes = 0;  // read from memory per second
};
/// The best of several short measurements each. Holds half a GiB of memory from the first call on; the
/// caller's `pool` must be idle.
Peaks probe_peaks(ThreadPool& pool, kernels::IsaLevel level, WeightFormat format);

}  // namespace quire::bench
