#include "backend/cuda/device.h"
#include "backend/cuda/embed.h"
#include "backend/cuda/ptx.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kThreads = 128;

/// One block a row; it copies bytes, whatever they hold.
__global__ void __launch_bounds__(kThreads)
    embed_kernel(const unsigned char* table, const uint32_t* tokens, const TokenId* late, unsigned char* out,
                 size_t row_bytes) {
  let_next_begin();
  wait_for_earlier();
  uint32_t token = tokens[block_x()];
  if ((token & kLateBit) != 0) {
    const TokenId sampled = late[token & ~kLateBit];
    token = sampled < 0 ? 0 : static_cast<uint32_t>(sampled);
  }
  const unsigned char* from = table + token * row_bytes;
  unsigned char* to = out + block_x() * row_bytes;
  for (size_t i = thread_x() * size_t{16}; i < row_bytes; i += kThreads * size_t{16}) {
    ptx::store_128(to + i, ptx::load_readonly_128(from + i));
  }
}

}  // namespace

LaunchError embed(const EmbedArgs& args, Stream stream) {
  const LaunchShape shape{{args.rows}, kThreads, 0, stream, Begins::kEarly};
  return launch("embed", shape, embed_kernel, static_cast<const unsigned char*>(args.table), args.tokens,
                args.late, static_cast<unsigned char*>(args.out), args.width * dtype_bytes(args.dtype));
}

}  // namespace quire::backend::cuda
