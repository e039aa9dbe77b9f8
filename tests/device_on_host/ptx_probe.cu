#include <cstring>

#include "backend/cuda/device.h"
#include "backend/cuda/element.h"
#include "backend/cuda/ptx.h"
#include "backend/cuda/ptx_mma.h"
#include "tests/device_on_host/ptx_probe.h"

// A kernel for each entry of ptx.h, ptx_float.h and ptx_mma.h, for asynchronous copies and for kernels that
// begin early, and nothing else: the tests show what it means on the host, and tools/check_cuda.py which
// machine instruction it becomes.
namespace quire::test::fibers {
namespace {

using namespace backend::cuda;  // NOLINT: as if it were one of its kernels

__global__ void probe_load_128(const ptx::Vec128* in, ptx::Vec128* out) {
  ptx::store_128(out + thread_x(), ptx::load_128(in + thread_x()));
}
__global__ void probe_load_readonly_128(const ptx::Vec128* in, ptx::Vec128* out) {
  ptx::store_128(out + thread_x(), ptx::load_readonly_128(in + thread_x()));
}
__global__ void probe_shared_128(const ptx::Vec128* in, ptx::Vec128* out) {
  auto* shared = shared_memory<ptx::Vec128>();
  ptx::store_shared_128(shared + thread_x(), ptx::load_128(in + thread_x()));
  sync_block();
  ptx::store_128(out + thread_x(), ptx::load_shared_128(shared + (thread_x() ^ 1)));
}
__global__ void probe_load_matrices(const ptx::Vec128* in, ptx::Vec128* out) {
  auto* shared = shared_memory<ptx::Vec128>();
  ptx::store_shared_128(shared + thread_x(), ptx::load_128(in + thread_x()));
  sync_block();
  ptx::store_128(out + thread_x(), ptx::load_matrices<false>(shared + thread_x()));
}
__global__ void probe_load_transposed(const ptx::Vec128* in, ptx::Vec128* out) {
  auto* shared = shared_memory<ptx::Vec128>();
  ptx::store_shared_128(shared + thread_x(), ptx::load_128(in + thread_x()));
  sync_block();
  ptx::store_128(out + thread_x(), ptx::load_matrices<true>(shared + thread_x()));
}
/// The matrices 0 to 3 times 0 and 1.
template <class T>
__global__ void probe_multiply_add(const ptx::Vec128* in, ptx::Vec128* out) {
  const ptx::Matrices m = ptx::load_128(in + thread_x());
  ptx::Accumulator sums = {};
  ptx::multiply_add<T>(sums, m, m.words[0], m.words[1]);
  const Floats<float> values = {{sums.at[0], sums.at[1], sums.at[2], sums.at[3]}};
  ptx::store_128(out + thread_x(), pack<float>(values));
}
/// The first and the next.
__global__ void probe_store_64(const float* in, float* out) {
  if (thread_x() % 2 == 0) ptx::store_64(out + thread_x(), in[thread_x()], -in[thread_x()]);
}
__global__ void probe_copy_async(const ptx::Vec128* in, ptx::Vec128* out) {
  auto* shared = shared_memory<ptx::Vec128>();
  copy_async(shared + thread_x(), in + thread_x(), sizeof(ptx::Vec128));
  commit_copies();
  wait_for_copies(0);
  sync_block();
  ptx::store_128(out + thread_x(), ptx::load_shared_128(shared + (thread_x() ^ 1)));
}
/// Adds 1 where the launch before did.
__global__ void probe_early(const float* in, float* out) {
  let_next_begin();
  wait_for_earlier();
  out[thread_x()] = (in != nullptr ? in[thread_x()] : out[thread_x()]) + 1.0F;
}
__global__ void probe_fused(const float* in, float* out) {
  out[thread_x()] = ptx::fused(in[thread_x()], in[thread_x()], -1.0F);
}
/// The square of each element, and 1, less twice the element.
template <class T>
__global__ void probe_fused_pair(const uint32_t* in, uint32_t* out) {
  const uint32_t word = in[thread_x()];
  const uint32_t less = ptx::fused_pair<T>(word, pack_pair<T>(-2.0F, -2.0F), pack_pair<T>(1.0F, 1.0F));
  out[thread_x()] = ptx::fused_pair<T>(word, word, less);
}
/// The sum must not be fused with it.
__global__ void probe_product(const float* in, float* out) {
  out[thread_x()] = ptx::product(in[thread_x()], in[thread_x()]) - 1.0F;
}
__global__ void probe_exp2_approx(const float* in, float* out) {
  out[thread_x()] = ptx::exp2_approx(in[thread_x()]);
}
__global__ void probe_rsqrt_approx(const float* in, float* out) {
  out[thread_x()] = ptx::rsqrt_approx(in[thread_x()]);
}
__global__ void probe_reciprocal_approx(const float* in, float* out) {
  out[thread_x()] = ptx::reciprocal_approx(in[thread_x()]);
}
__global__ void probe_to_bf16(const float* in, uint16_t* out) {
  out[thread_x()] = ptx::to_bf16(in[thread_x()]);
}
__global__ void probe_to_f16(const float* in, uint16_t* out) {
  out[thread_x()] = ptx::to_f16(in[thread_x()]);
}
__global__ void probe_from_f16(const uint16_t* in, float* out) {
  out[thread_x()] = ptx::from_f16(in[thread_x()]);
}

template <class In, class Out>
void start(const char* entry, void (*kernel)(const In*, Out*), const void* in, void* out,
           Begins begins = Begins::kAfterEarlier) {
  const LaunchShape shape{{1}, kProbeThreads, kProbeThreads * sizeof(ptx::Vec128), nullptr, begins};
  static_cast<void>(launch(entry, shape, kernel, static_cast<const In*>(in), static_cast<Out*>(out)));
}

}  // namespace

void probe(const char* entry, const void* in, void* out) {
  const auto is = [entry](const char* name) { return std::strcmp(entry, name) == 0; };
  if (is("load_128")) start(entry, probe_load_128, in, out);
  if (is("load_readonly_128")) start(entry, probe_load_readonly_128, in, out);
  if (is("shared_128")) start(entry, probe_shared_128, in, out);
  if (is("load_matrices")) start(entry, probe_load_matrices, in, out);
  if (is("load_transposed")) start(entry, probe_load_transposed, in, out);
  if (is("multiply_add<Bf16>")) start(entry, probe_multiply_add<Bf16>, in, out);
  if (is("multiply_add<F16>")) start(entry, probe_multiply_add<F16>, in, out);
  if (is("store_64")) start(entry, probe_store_64, in, out);
  if (is("copy_async")) start(entry, probe_copy_async, in, out);
  for (uint32_t i = 0; is("early") && i < kProbeLaunches; ++i) {
    start(entry, probe_early, i == 0 ? in : nullptr, out, Begins::kEarly);
  }
  if (is("fused")) start(entry, probe_fused, in, out);
  if (is("fused_pair<Bf16>")) start(entry, probe_fused_pair<Bf16>, in, out);
  if (is("fused_pair<F16>")) start(entry, probe_fused_pair<F16>, in, out);
  if (is("product")) start(entry, probe_product, in, out);
  if (is("exp2_approx")) start(entry, probe_exp2_approx, in, out);
  if (is("rsqrt_approx")) start(entry, probe_rsqrt_approx, in, out);
  if (is("reciprocal_approx")) start(entry, probe_reciprocal_approx, in, out);
  if (is("to_bf16")) start(entry, probe_to_bf16, in, out);
  if (is("to_f16")) start(entry, probe_to_f16, in, out);
  if (is("from_f16")) start(entry, probe_from_f16, in, out);
}

}  // namespace quire::test::fibers
