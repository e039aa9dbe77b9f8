#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/rms_norm.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256;
constexpr uint32_t kWarps = kThreads / kWarp;

/// The sum over the block, in the order of its warps. `sums`: kWarps floats of shared memory.
__device__ float block_sum(float value, float* sums) {
  value = warp_sum(value);
  if (thread_x() % kWarp == 0) sums[thread_x() / kWarp] = value;
  sync_block();
  float total = 0.0F;
  for (uint32_t warp = 0; warp < kWarps; ++warp) total += sums[warp];
  return total;
}

/// One block a row. A thread reads again in the second pass only what it wrote itself in the first.
template <class T>
__global__ void __launch_bounds__(kThreads)
    rms_norm_kernel(const T* x, T* residual, const T* weight, T* y, float eps, uint32_t width) {
  const size_t first = size_t{block_x()} * width;
  const T* in = residual != nullptr ? residual + first : x + first;
  float sum = 0.0F;
  for (uint32_t i = thread_x() * kPiece<T>; i < width; i += kThreads * kPiece<T>) {
    ptx::Vec128 piece = ptx::load_128(x + first + i);
    Floats<T> values = unpack<T>(piece);
    if (residual != nullptr) {
      const Floats<T> before = unpack<T>(ptx::load_128(residual + first + i));
      for (uint32_t j = 0; j < kPiece<T>; ++j) values.at[j] += before.at[j];
      piece = pack<T>(values);
      ptx::store_128(residual + first + i, piece);
      values = unpack<T>(piece);
    }
    for (uint32_t j = 0; j < kPiece<T>; ++j) sum += values.at[j] * values.at[j];
  }
  const float mean = block_sum(sum, shared_memory<float>()) / static_cast<float>(width);
  const float scale = ptx::rsqrt_approx(mean + eps);
  for (uint32_t i = thread_x() * kPiece<T>; i < width; i += kThreads * kPiece<T>) {
    Floats<T> values = unpack<T>(ptx::load_128(in + i));
    const Floats<T> factors = unpack<T>(ptx::load_readonly_128(weight + i));
    for (uint32_t j = 0; j < kPiece<T>; ++j) values.at[j] *= scale * factors.at[j];
    ptx::store_128(y + first + i, pack<T>(values));
  }
}

}  // namespace

LaunchError rms_norm(const RmsNormArgs& args, Stream stream) {
  return for_element(args.dtype, [&](auto type) {
    using T = decltype(type);
    const LaunchShape shape{{args.rows}, kThreads, kWarps * sizeof(float), stream};
    return launch("rms_norm", shape, rms_norm_kernel<T>, static_cast<const T*>(args.x),
                  static_cast<T*>(args.residual), static_cast<const T*>(args.weight), static_cast<T*>(args.y),
                  args.eps, args.width);
  });
}

}  // namespace quire::backend::cuda
