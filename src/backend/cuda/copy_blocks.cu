#include "backend/cuda/copy_blocks.h"
#include "backend/cuda/device.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256;
/// The pieces that a part is divided into, so that a few large blocks occupy a device too.
constexpr uint32_t kPieces = 8;

__global__ void __launch_bounds__(kThreads) copy_blocks_kernel(CopyBlocksArgs args) {
  let_next_begin();
  wait_for_earlier();
  auto* parts = static_cast<unsigned char*>(args.cache) + block_z() * args.array_bytes;
  const unsigned char* from = parts + args.pairs[2 * block_x()] * args.part_bytes;
  unsigned char* to = parts + args.pairs[2 * block_x() + 1] * args.part_bytes;
  for (size_t i = (block_y() * kThreads + thread_x()) * size_t{16}; i < args.part_bytes;
       i += kPieces * kThreads * size_t{16}) {
    copy_128(to + i, from + i);
  }
}

}  // namespace

LaunchError copy_blocks(const CopyBlocksArgs& args, Stream stream) {
  const LaunchShape shape{{args.count, kPieces, args.arrays}, kThreads, 0, stream, Begins::kEarly};
  return launch("copy_blocks", shape, copy_blocks_kernel, args);
}

}  // namespace quire::backend::cuda
