#pragma once

#include <cstdint>

struct CUstream_st;

namespace quire::backend::cuda {

/// What CUDA calls cudaStream_t: kernels of one stream run one after another. Null is the default stream.
using Stream = CUstream_st*;

/// What a launch returns: 0, or the number of the cudaError_t that refused it (one of no rows is refused).
/// What goes wrong while a kernel runs is reported by a later call on its stream.
using LaunchError = int;

}  // namespace quire::backend::cuda
