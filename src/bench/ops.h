#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bench/machine.h"
#include "kernels/context.h"

// Each kernel by itself, at the shapes of Llama-3.2-1B.
namespace quire::bench {

/// What a call was measured to take, and what it is to be compared with.
struct Measured {
  std::vector<double> seconds;  // of one call, for each repeat, ascending
  double flops = 0;             // of one call
  double bytes = 0;
  Peaks peaks;

  double median() const { return seconds[seconds.size() / 2]; }
  /// The roofline (Williams et al. 2009): the seconds that the arithmetic needs or the bytes, the longer.
  double limit() const {
    return std::max(peaks.flops > 0 ? flops / peaks.flops : 0, peaks.bytes > 0 ? bytes / peaks.bytes : 0);
  }
};

class OpTimer;

struct OpCase {
  std::string name;  // "matmul/avx2/bf16/8192x2048/m1"
  std::function<Measured(OpTimer&)> run;
};

/// What the thread pool takes to start a loop and to end it.
OpCase empty_loop_case();
/// The ops of a level, in the order in which they run.
std::vector<OpCase> op_cases(kernels::IsaLevel level);

/// Times calls over and over, as many as take a tenth of a second, `repeats` times. The peaks are the better
/// of right before and right after. The caller's `pool` must be idle.
Measured measure(const OpCase& op, ThreadPool& pool, uint32_t repeats);

}  // namespace quire::bench
