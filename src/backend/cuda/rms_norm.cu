#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/rms_norm.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kMostThreads = 256;

/// The sum over the block, in the order of its warps. `sums`: a float of shared memory for each.
__device__ float block_sum(float value, float* sums, uint32_t warps) {
  value = warp_sum(value);
  if (thread_x() % kWarp == 0) sums[thread_x() / kWarp] = value;
  sync_block();
  float total = 0.0F;
  for (uint32_t warp = 0; warp < warps; ++warp) total += sums[warp];
  return total;
}

/// One block a row. A thread reads again in the second pass only what it wrote itself in the first.
template <class T>
__global__ void __launch_bounds__(kMostThreads) rms_norm_kernel(RmsNormArgs args, uint32_t warps) {
  let_next_begin();
  wait_for_earlier();
  const uint32_t stretch = warps * kWarp * kPiece<T>;
  const uint32_t width = args.width;
  const size_t first = size_t{block_x() / args.heads} * args.stride + block_x() % args.heads * width;
  const T* x = static_cast<const T*>(args.x) + first;
  T* y = static_cast<T*>(args.y) + first;
  T* residual = static_cast<T*>(args.residual);
  if (residual != nullptr) residual += size_t{block_x()} * width;
  float sum = 0.0F;
  for (uint32_t i = thread_x() * kPiece<T>; i < width; i += stretch) {
    Floats<T> values = unpack<T>(ptx::load_128(x + i));
    if (residual != nullptr) {
      const Floats<T> before = unpack<T>(ptx::load_128(residual + i));
      for (uint32_t j = 0; j < kPiece<T>; ++j) values.at[j] = before.at[j] + args.factor * values.at[j];
      const ptx::Vec128 stored = pack<T>(values);
      ptx::store_128(residual + i, stored);
      values = unpack<T>(stored);
    }
    for (uint32_t j = 0; j < kPiece<T>; ++j) sum += values.at[j] * values.at[j];
  }
  const float mean = block_sum(sum, shared_memory<float>(), warps) / static_cast<float>(width);
  const float scale = ptx::rsqrt_approx(mean + args.eps);
  const T* in = residual != nullptr ? residual : x;
  for (uint32_t i = thread_x() * kPiece<T>; i < width; i += stretch) {
    Floats<T> values = unpack<T>(ptx::load_128(in + i));
    for (uint32_t part = 0; part < kPiece<T>; part += kPiece<float>) {
      const Floats<float> factors = unpack<float>(ptx::load_readonly_128(args.weight + i + part));
      for (uint32_t j = 0; j < kPiece<float>; ++j) values.at[part + j] *= scale * factors.at[j];
    }
    ptx::store_128(y + i, pack<T>(values));
  }
}

}  // namespace

LaunchError rms_norm(const RmsNormArgs& args, Stream stream) {
  return for_element(args.dtype, [&](auto type) {
    using T = decltype(type);
    const uint32_t warps = threads_for(args.width / kPiece<T>, kMostThreads) / kWarp;
    const LaunchShape shape{
        {args.rows}, warps * kWarp, static_cast<uint32_t>(warps * sizeof(float)), stream, Begins::kEarly};
    return launch("rms_norm", shape, rms_norm_kernel<T>, args, warps);
  });
}

}  // namespace quire::backend::cuda
