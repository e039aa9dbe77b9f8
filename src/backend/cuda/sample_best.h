#pragma once

#include "backend/cuda/sample.h"
#include "backend/cuda/stream.h"

namespace quire::backend::cuda {

/// sample() of the rows that takes_best() is true of: the lowest id of the highest logit. Leaves the others
/// as they are, and the workspace.
///
/// One block of up to 1,024 threads a row reads the row once, each thread 8 pieces of 16 bytes at a time,
/// which are 128 KiB on their way to a multiprocessor.
[[nodiscard]] LaunchError sample_best(const SampleArgs& args, Stream stream);

}  // namespace quire::backend::cuda
