#pragma once

#include <cstddef>
#include <cstdint>

#include "backend/cuda/stream.h"

#ifdef __CUDACC__
#include <cuda_pipeline_primitives.h>
#include <cuda_runtime.h>
#include <map>
#include <mutex>
#include <utility>
/// Before a loop whose arrays shall stay in registers.
#define QUIRE_UNROLL _Pragma("unroll")
/// Before a loop that is not to be unrolled.
#define QUIRE_KEEP_LOOP _Pragma("unroll 1")
/// Before a loop of which so many turns, a constant, are to become one.
#define QUIRE_UNROLL_BY(turns) QUIRE_PRAGMA(unroll turns)
#define QUIRE_PRAGMA(text) _Pragma(#text)
#else
#include <source_location>
#define __global__
#define __device__
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define QUIRE_UNROLL
#define QUIRE_KEEP_LOOP
#define QUIRE_UNROLL_BY(turns)
#endif

// What kernels use of the device besides single instructions (ptx*.h). nvcc sees CUDA's own names
// behind these functions; any other compiler sees calls of `host`, which whoever runs kernels without a
// device defines (tests/device_on_host). Kernels use nothing else of CUDA: no grid-wide barrier, no
// cooperative groups, no launch from a kernel, no __activemask, and no float atomics.
namespace quire::backend::cuda {

inline constexpr uint32_t kWarp = 32;
inline constexpr uint32_t kWholeWarp = 0xffffffff;
/// The shared memory that a block may have on every device without asking for more, and what launch() may ask
/// for: of the devices that kernels are compiled for, those of 8.6, 8.9 and 12.0 give a block least.
inline constexpr uint32_t kUnaskedSharedBytes = 48 << 10;
inline constexpr uint32_t kMostSharedBytes = 99 << 10;

/// The blocks with so much of it that a multiprocessor of the device that is compiled for has room for
/// ("Compute Capabilities" in NVIDIA's CUDA C++ Programming Guide); each takes 1 KiB more.
constexpr uint32_t fitting_blocks(uint32_t shared_bytes) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ == 900 || __CUDA_ARCH__ == 1000
  constexpr uint32_t kAll = 228 << 10;
#elif __CUDA_ARCH__ == 800
  constexpr uint32_t kAll = 164 << 10;
#else
  constexpr uint32_t kAll = 100 << 10;
#endif
  return kAll / (shared_bytes + (1 << 10));
}

struct Grid {
  uint32_t x = 1;
  uint32_t y = 1;
  uint32_t z = 1;
};

/// When a kernel begins: once all work before it in its stream is complete, or as soon as all blocks of the
/// kernel before it have begun and called let_next_begin(), or ended. ("Programmatic Dependent Launch and
/// Synchronization" in NVIDIA's CUDA C++ Programming Guide.)
///
/// Of one that begins early, each thread calls wait_for_earlier() before it ends, also where it has nothing
/// to do: else the kernel might be complete before those before it, and what comes next be in no order with
/// them. Before that it writes no global memory, and reads none but what nobody writes while a model runs.
/// Where the device or the kernel's code is older than compute capability 9.0, it begins like any other.
enum class Begins : uint8_t { kAfterEarlier, kEarly };

struct LaunchShape {
  Grid grid;  // blocks
  uint32_t threads = 0;
  uint32_t shared_bytes = 0;  // at most kMostSharedBytes
  Stream stream = nullptr;
  Begins begins = Begins::kAfterEarlier;
};

#ifndef __CUDACC__
namespace host {
using Where = std::source_location;
uint32_t thread();  // of the running thread, in its block
Grid block();
Grid grid();
void* shared_memory();
void sync_block(Where where);
void sync_warp(uint32_t mask, Where where);
uint32_t shuffle(uint32_t mask, uint32_t bits, uint32_t from_lane, Where where);
/// Copies to `all` what each lane of the warp gives, `bytes` long, once all have given theirs.
void gather(const void* own, size_t bytes, void* all, Where where = Where::current());
/// The running thread reads memory as if nobody wrote it while the kernel runs.
void read_constant(const void* from, size_t bytes);
/// The running thread copies bytes within global memory, without asking whether they were written.
void copy_global(void* to, const void* from, uint32_t bytes);
/// Like the device's functions of these names.
void copy_async(void* to, const void* from, uint32_t bytes);
void commit_copies();
void wait_for_copies(uint32_t but);
void let_next_begin(Where where);
void wait_for_earlier();
uint32_t multiprocessor_shared_bytes();
/// Calls call(closure) for each thread; the closure is `bytes` long and holds the kernel's parameters.
LaunchError launch(const char* kernel, const LaunchShape& shape, void (*call)(const void* closure),
                   const void* closure, size_t bytes);
}  // namespace host
#define QUIRE_WHERE , host::Where where = host::Where::current()
#define QUIRE_ONLY_WHERE host::Where where = host::Where::current()
#else
#define QUIRE_WHERE
#define QUIRE_ONLY_WHERE
#endif

__device__ __forceinline__ uint32_t thread_x() {
#ifdef __CUDACC__
  return threadIdx.x;
#else
  return host::thread();
#endif
}
__device__ __forceinline__ uint32_t block_x() {
#ifdef __CUDACC__
  return blockIdx.x;
#else
  return host::block().x;
#endif
}
__device__ __forceinline__ uint32_t block_y() {
#ifdef __CUDACC__
  return blockIdx.y;
#else
  return host::block().y;
#endif
}
__device__ __forceinline__ uint32_t block_z() {
#ifdef __CUDACC__
  return blockIdx.z;
#else
  return host::block().z;
#endif
}
__device__ __forceinline__ uint32_t grid_x() {
#ifdef __CUDACC__
  return gridDim.x;
#else
  return host::grid().x;
#endif
}

/// The block's shared memory, aligned to 16 bytes: as much as its launch gave it.
template <class T>
__device__ __forceinline__ T* shared_memory() {
#ifdef __CUDACC__
  extern __shared__ __align__(16) unsigned char quire_shared_memory[];
  return reinterpret_cast<T*>(quire_shared_memory);
#else
  return static_cast<T*>(host::shared_memory());
#endif
}

/// All threads of the block reach it, at the same place of the source; what they wrote before, all see after.
__device__ __forceinline__ void sync_block(QUIRE_ONLY_WHERE) {
#ifdef __CUDACC__
  __syncthreads();
#else
  host::sync_block(where);
#endif
}

/// The same for the lanes in `mask`.
__device__ __forceinline__ void sync_warp(uint32_t mask QUIRE_WHERE) {
#ifdef __CUDACC__
  __syncwarp(mask);
#else
  host::sync_warp(mask, where);
#endif
}

/// Copies 16 bytes of global memory, both at multiples of 16. Bytes that nobody wrote may be copied too, but
/// neither they nor their copy be used.
__device__ __forceinline__ void copy_128(void* to, const void* from) {
#ifdef __CUDACC__
  *static_cast<uint4*>(to) = *static_cast<const uint4*>(from);
#else
  host::copy_global(to, from, 16);
#endif
}

/// Begins to copy 4, 8 or 16 bytes from global to shared memory, both at multiples of as many. They arrive at
/// some moment before wait_for_copies() returns in this thread; other threads see them after a barrier that
/// follows. Until then nobody touches where they go, and nobody writes where they come from.
__device__ __forceinline__ void copy_async(void* to, const void* from, uint32_t bytes) {
#ifdef __CUDACC__
  __pipeline_memcpy_async(to, from, bytes);
#else
  host::copy_async(to, from, bytes);
#endif
}
/// The copies that the thread has begun since it last called this become a group, perhaps an empty one.
__device__ __forceinline__ void commit_copies() {
#ifdef __CUDACC__
  __pipeline_commit();
#else
  host::commit_copies();
#endif
}
/// Waits for all groups of the thread but the last `but` of them.
__device__ __forceinline__ void wait_for_copies(uint32_t but) {
#ifdef __CUDACC__
  __pipeline_wait_prior(but);
#else
  host::wait_for_copies(but);
#endif
}

/// "Parallel Synchronization and Communication Instructions: griddepcontrol.launch_dependents" (PTX ISA): as
/// far as this block is concerned, the next kernel of the stream may begin, if it is launched so. It promises
/// nothing of what this one has written.
__device__ __forceinline__ void let_next_begin(QUIRE_ONLY_WHERE) {
#ifndef __CUDACC__
  host::let_next_begin(where);
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}
/// "griddepcontrol.wait", of the same section: all work before the kernel in its stream is complete, and what
/// it wrote is seen.
__device__ __forceinline__ void wait_for_earlier() {
#ifndef __CUDACC__
  host::wait_for_earlier();
#elif __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

/// `value`, which the compiler keeps in a register instead of computing it again where it is used.
__device__ __forceinline__ uint32_t kept(uint32_t value) {
#ifdef __CUDACC__
  asm volatile("" : "+r"(value));
#endif
  return value;
}
__device__ __forceinline__ float kept(float value) {
#ifdef __CUDACC__
  asm volatile("" : "+f"(value));
#endif
  return value;
}

__device__ __forceinline__ uint32_t float_bits(float value) { return __builtin_bit_cast(uint32_t, value); }
__device__ __forceinline__ float float_of_bits(uint32_t bits) { return __builtin_bit_cast(float, bits); }

/// The value of the lane whose number differs in the bits of `distance`. All lanes of `mask` reach it; it
/// orders no access to memory.
__device__ __forceinline__ float shuffle_xor(uint32_t mask, float value, uint32_t distance QUIRE_WHERE) {
#ifdef __CUDACC__
  return __shfl_xor_sync(mask, value, distance);
#else
  return float_of_bits(host::shuffle(mask, float_bits(value), host::thread() % kWarp ^ distance, where));
#endif
}

/// Whether a lane of the warp has `value`, the same in every lane. All lanes reach it; it orders no access to
/// memory.
__device__ __forceinline__ bool any_of_warp(bool value QUIRE_WHERE) {
#ifdef __CUDACC__
  return __any_sync(kWholeWarp, value ? 1 : 0) != 0;
#else
  bool values[kWarp];
  host::gather(&value, sizeof(value), values, where);
  bool any = false;
  for (const bool one : values) any |= one;
  return any;
#endif
}

__device__ __forceinline__ uint64_t shuffle_xor(uint32_t mask, uint64_t value,
                                                uint32_t distance QUIRE_WHERE) {
#ifdef __CUDACC__
  return __shfl_xor_sync(mask, value, distance);
#else
  const uint32_t from = host::thread() % kWarp ^ distance;
  const uint32_t low = host::shuffle(mask, static_cast<uint32_t>(value), from, where);
  return uint64_t{host::shuffle(mask, static_cast<uint32_t>(value >> 32), from, where)} << 32 | low;
#endif
}

/// The value of a lane, as shuffle_xor.
__device__ __forceinline__ uint32_t shuffle(uint32_t mask, uint32_t value, uint32_t from_lane QUIRE_WHERE) {
#ifdef __CUDACC__
  return __shfl_sync(mask, value, from_lane);
#else
  return host::shuffle(mask, value, from_lane, where);
#endif
}

/// Of two numbers.
__device__ __forceinline__ float larger(float a, float b) {
#ifdef __CUDACC__
  return fmaxf(a, b);
#else
  return b > a ? b : a;
#endif
}

/// The sum over the warp, the same bits in every lane. All lanes reach it.
__device__ __forceinline__ float warp_sum(float value) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    value += shuffle_xor(kWholeWarp, value, distance);
  }
  return value;
}

__device__ __forceinline__ float warp_max(float value) {
  for (uint32_t distance = kWarp / 2; distance > 0; distance /= 2) {
    value = larger(value, shuffle_xor(kWholeWarp, value, distance));
  }
  return value;
}

/// The threads of a block that share `pieces` of work: whole warps, no more than have some.
inline uint32_t threads_for(uint32_t pieces, uint32_t most) {
  const uint32_t wanted = (pieces + kWarp - 1) / kWarp * kWarp;
  return wanted < most ? wanted : most;
}

/// The shared memory of a multiprocessor of the current device, from host code.
inline uint32_t multiprocessor_shared_bytes() {
#ifdef __CUDACC__
  int device = 0;
  int bytes = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return 0;
  static_cast<void>(cudaDeviceGetAttribute(&bytes, cudaDevAttrMaxSharedMemoryPerMultiprocessor, device));
  return static_cast<uint32_t>(bytes);
#else
  return host::multiprocessor_shared_bytes();
#endif
}

#ifdef __CUDACC__
/// Asks that launches may give the kernel's blocks so much, once for each kernel and device and where it is
/// more than before.
inline LaunchError allow_shared_memory(const void* kernel, uint32_t bytes) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, uint32_t> allowed;
  int device = 0;
  if (const cudaError_t error = cudaGetDevice(&device); error != cudaSuccess) return error;
  const std::lock_guard lock(mutex);
  uint32_t& most = allowed[{device, kernel}];
  if (bytes <= most) return 0;
  const cudaError_t error =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (error == cudaSuccess) most = bytes;
  return error;
}

/// Whether the code that the device runs of a kernel waits for earlier ones, looked up once for each.
inline bool waits_for_earlier(const void* kernel) {
  static std::mutex mutex;
  static std::map<std::pair<int, const void*>, bool> known;
  int device = 0;
  if (cudaGetDevice(&device) != cudaSuccess) return false;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace({device, kernel}, false);
  if (is_new) {
    cudaFuncAttributes attributes{};
    const cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
    if (error != cudaSuccess) static_cast<void>(cudaGetLastError());  // what is wrong, the launch says
    // A newer device may run code that was compiled for an older one and has no such instruction.
    entry->second = error == cudaSuccess && attributes.ptxVersion >= 90;
  }
  return entry->second;
}
#endif

/// Starts `kernel`, which reports speak of as `name`.
template <class... Parameters, class... Arguments>
LaunchError launch([[maybe_unused]] const char* name, const LaunchShape& shape, void (*kernel)(Parameters...),
                   Arguments... arguments) {
#ifdef __CUDACC__
  if (shape.shared_bytes > kUnaskedSharedBytes) {
    const LaunchError error = allow_shared_memory(reinterpret_cast<const void*>(kernel), shape.shared_bytes);
    if (error != 0) return error;
  }
  const bool is_early =
      shape.begins == Begins::kEarly && waits_for_earlier(reinterpret_cast<const void*>(kernel));
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(shape.grid.x, shape.grid.y, shape.grid.z);
  config.blockDim = dim3(shape.threads);
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  config.attrs = &early;
  config.numAttrs = is_early ? 1 : 0;
  static_cast<void>(cudaLaunchKernelEx(&config, kernel, arguments...));
  return cudaGetLastError();
#else
  const auto closure = [kernel, arguments...] { kernel(arguments...); };
  using Closure = decltype(closure);
  const auto call = [](const void* made) { (*static_cast<Closure*>(made))(); };
  return host::launch(name, shape, call, &closure, sizeof(closure));
#endif
}

}  // namespace quire::backend::cuda
