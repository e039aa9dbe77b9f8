#include "backend/cuda/activate.h"
#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/gated.h"

namespace quire::backend::cuda {
namespace {

constexpr uint32_t kMostThreads = 128;

/// One piece a thread: blocks are rows by stretches of as many pieces as they have threads.
template <class T, model::Activation activation>
__global__ void __launch_bounds__(kMostThreads)
    gated_kernel(const T* gate_up, T* out, uint32_t width, uint32_t threads) {
  let_next_begin();
  wait_for_earlier();
  const uint32_t i = (block_y() * threads + thread_x()) * kPiece<T>;
  if (i >= width) return;
  const T* gates = gate_up + size_t{block_x()} * 2 * width + i;
  Floats<T> values = unpack<T>(ptx::load_readonly_128(gates));
  const Floats<T> ups = unpack<T>(ptx::load_readonly_128(gates + width));
  for (uint32_t j = 0; j < kPiece<T>; ++j) values.at[j] = activate(activation, values.at[j]) * ups.at[j];
  ptx::store_128(out + size_t{block_x()} * width + i, pack<T>(values));
}

}  // namespace

LaunchError gated(const GatedArgs& args, Stream stream) {
  return for_element(args.dtype, [&](auto type) {
    using T = decltype(type);
    const uint32_t threads = threads_for(args.width / kPiece<T>, kMostThreads);
    const uint32_t stretch = threads * kPiece<T>;
    const LaunchShape shape{
        {args.rows, (args.width + stretch - 1) / stretch}, threads, 0, stream, Begins::kEarly};
    const auto kernel = args.activation == model::Activation::kGeluTanh
                            ? gated_kernel<T, model::Activation::kGeluTanh>
                            : gated_kernel<T, model::Activation::kSilu>;
    return launch("gated", shape, kernel, static_cast<const T*>(args.gate_up), static_cast<T*>(args.out),
                  args.width, threads);
  });
}

}  // namespace quire::backend::cuda
