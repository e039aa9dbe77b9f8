#include "backend/cuda/copy_blocks.h"
#include "backend/cuda/device.h"
#include "backend/cuda/ptx.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256;
/// The parts that a pair is divided into, so that a few large blocks occupy a device too.
constexpr uint32_t kParts = 8;

__global__ void __launch_bounds__(kThreads)
    copy_blocks_kernel(unsigned char* cache, size_t block_bytes, const uint32_t* pairs) {
  const unsigned char* from = cache + pairs[2 * block_x()] * block_bytes;
  unsigned char* to = cache + pairs[2 * block_x() + 1] * block_bytes;
  for (size_t i = (block_y() * kThreads + thread_x()) * size_t{16}; i < block_bytes;
       i += kParts * kThreads * size_t{16}) {
    ptx::store_128(to + i, ptx::load_128(from + i));
  }
}

}  // namespace

LaunchError copy_blocks(const CopyBlocksArgs& args, Stream stream) {
  const LaunchShape shape{{args.count, kParts}, kThreads, 0, stream};
  return launch("copy_blocks", shape, copy_blocks_kernel, static_cast<unsigned char*>(args.cache),
                args.block_bytes, args.pairs);
}

}  // namespace quire::backend::cuda
