#pragma once

#include <cstdint>

#include "backend/cuda/device.h"
#include "backend/cuda/ptx_float.h"
#include "tensor/dtype.h"

// Each instruction that kernels ask for by name is a function: on the device one line of assembly, on the
// host the meaning that NVIDIA's "Parallel Thread Execution ISA", version 9.0, documents for it. Sections are
// cited by title, since their numbers change from version to version.
namespace quire::backend::cuda::ptx {

/// 16 bytes in registers.
struct Vec128 {
  uint32_t words[4];
};

#ifdef __CUDACC__
#define QUIRE_WORDS(kind, v) kind((v).words[0]), kind((v).words[1]), kind((v).words[2]), kind((v).words[3])
#else
/// GCC accesses a vector as a whole, a struct perhaps word by word; the host's checkers must see 16 bytes.
using HostVector = uint32_t __attribute__((vector_size(16)));

inline Vec128 host_load_128(const void* from) {
  const HostVector v = *static_cast<const HostVector*>(from);
  return {{v[0], v[1], v[2], v[3]}};
}
inline void host_store_128(void* to, const Vec128& value) {
  const auto& w = value.words;
  *static_cast<HostVector*>(to) = HostVector{w[0], w[1], w[2], w[3]};
}
#endif

/// "Data Movement and Conversion Instructions: ld". From global memory, at a multiple of 16.
__device__ __forceinline__ Vec128 load_128(const void* from) {
#ifdef __CUDACC__
  Vec128 v;
  const auto address = __cvta_generic_to_global(from);
  asm volatile("ld.global.v4.b32 {%0,%1,%2,%3}, [%4];" : QUIRE_WORDS("=r", v) : "l"(address) : "memory");
  return v;
#else
  return host_load_128(from);
#endif
}

/// "Data Movement and Conversion Instructions: ld.global.nc". As load_128, from memory that nobody writes
/// while the kernel runs.
__device__ __forceinline__ Vec128 load_readonly_128(const void* from) {
#ifdef __CUDACC__
  Vec128 v;
  const auto address = __cvta_generic_to_global(from);
  asm("ld.global.nc.v4.b32 {%0,%1,%2,%3}, [%4];" : QUIRE_WORDS("=r", v) : "l"(address));
  return v;
#else
  host::read_constant(from, sizeof(Vec128));
  return host_load_128(from);
#endif
}

/// "Data Movement and Conversion Instructions: st". To global memory, at a multiple of 16.
__device__ __forceinline__ void store_128(void* to, const Vec128& v) {
#ifdef __CUDACC__
  const auto address = __cvta_generic_to_global(to);
  asm volatile("st.global.v4.b32 [%0], {%1,%2,%3,%4};" ::"l"(address), QUIRE_WORDS("r", v) : "memory");
#else
  host_store_128(to, v);
#endif
}

/// "Data Movement and Conversion Instructions: ld", of shared memory, at a multiple of 16.
__device__ __forceinline__ Vec128 load_shared_128(const void* from) {
#ifdef __CUDACC__
  Vec128 v;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(from));
  asm volatile("ld.shared.v4.b32 {%0,%1,%2,%3}, [%4];" : QUIRE_WORDS("=r", v) : "r"(address) : "memory");
  return v;
#else
  return host_load_128(from);
#endif
}

/// "Data Movement and Conversion Instructions: st", to shared memory, at a multiple of 16.
__device__ __forceinline__ void store_shared_128(void* to, const Vec128& v) {
#ifdef __CUDACC__
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("st.shared.v4.b32 [%0], {%1,%2,%3,%4};" ::"r"(address), QUIRE_WORDS("r", v) : "memory");
#else
  host_store_128(to, v);
#endif
}

/// "Data Movement and Conversion Instructions: cvt". To the nearest bf16, ties to even.
__device__ __forceinline__ uint16_t to_bf16(float x) {
#ifdef __CUDACC__
  uint16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  return f32_to_bf16(x);
#endif
}

/// "Data Movement and Conversion Instructions: cvt". To the nearest f16, ties to even.
__device__ __forceinline__ uint16_t to_f16(float x) {
#ifdef __CUDACC__
  uint16_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y) : "f"(x));
  return y;
#else
  return f32_to_f16(x);
#endif
}

/// "Data Movement and Conversion Instructions: cvt". Exact.
__device__ __forceinline__ float from_f16(uint16_t x) {
#ifdef __CUDACC__
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x));
  return y;
#else
  return f16_to_f32(x);
#endif
}

}  // namespace quire::backend::cuda::ptx
