#pragma once

#include <string>

#include "base/thread_pool.h"
#include "kernels/context.h"
#include "tensor/weight_format.h"

// The machine that a command runs on.
namespace quire::cli {

/// "2 cores of Intel(R) Xeon(R) ..., Linux": what figures are to be read with.
std::string machine_name();

/// "auto" (the best) or a level by name. Throws Error naming --isa and what the machine has.
kernels::IsaLevel pick_isa(const std::string& name);

/// What the machine can do at this moment with all of a pool's threads.
struct Peaks {
  double flops = 0;  // per second, of the level's best multiply-add for a format; 0: not known
  double bytes = 0;  // read from memory per second
};
/// The best of several short tries each. Holds half a GiB of memory from the first call on; the caller's
/// `pool` must be idle.
Peaks probe_peaks(ThreadPool& pool, kernels::IsaLevel level, WeightFormat format);

}  // namespace quire::cli
