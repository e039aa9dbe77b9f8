#include <cmath>

#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/elementwise.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kThreads = 256;

/// One thread a piece.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_kernel(T* y, float y_factor, const T* x, float x_factor, size_t count) {
  let_next_begin();
  wait_for_earlier();
  const size_t first = (size_t{block_x()} * kThreads + thread_x()) * kPiece<T>;
  if (first >= count) return;
  Floats<T> values = unpack<T>(ptx::load_128(y + first));
  for (uint32_t i = 0; i < kPiece<T>; ++i) values.at[i] *= y_factor;
  if (x != nullptr) {
    const Floats<T> more = unpack<T>(ptx::load_128(x + first));
    for (uint32_t i = 0; i < kPiece<T>; ++i) values.at[i] += x_factor * more.at[i];
  }
  ptx::store_128(y + first, pack<T>(values));
}

__global__ void __launch_bounds__(kThreads) soft_cap_kernel(float* y, float cap, size_t count) {
  let_next_begin();
  wait_for_earlier();
  const size_t first = (size_t{block_x()} * kThreads + thread_x()) * kPiece<float>;
  if (first >= count) return;
  Floats<float> values = unpack<float>(ptx::load_128(y + first));
  for (uint32_t i = 0; i < kPiece<float>; ++i) values.at[i] = cap * std::tanh(values.at[i] / cap);
  ptx::store_128(y + first, pack<float>(values));
}

}  // namespace

LaunchError add(const AddArgs& args, Stream stream) {
  return for_element(args.dtype, [&](auto type) {
    using T = decltype(type);
    const size_t pieces = args.count / kPiece<T>;
    const LaunchShape shape{
        {static_cast<uint32_t>((pieces + kThreads - 1) / kThreads)}, kThreads, 0, stream, Begins::kEarly};
    return launch("add", shape, add_kernel<T>, static_cast<T*>(args.y), args.y_factor,
                  static_cast<const T*>(args.x), args.x_factor, args.count);
  });
}

LaunchError soft_cap(const SoftCapArgs& args, Stream stream) {
  const size_t pieces = args.count / kPiece<float>;
  const LaunchShape shape{
      {static_cast<uint32_t>((pieces + kThreads - 1) / kThreads)}, kThreads, 0, stream, Begins::kEarly};
  return launch("soft_cap", shape, soft_cap_kernel, args.y, args.cap, args.count);
}

}  // namespace quire::backend::cuda
