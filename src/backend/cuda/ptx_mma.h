#pragma once

#include <cmath>
#include <cstdint>

#include "backend/cuda/element.h"
#include "backend/cuda/ptx.h"

// The instructions of the tensor cores, as in ptx.h, which all lanes of a warp carry out together; and those
// that make what goes in and take what comes out.
namespace quire::backend::cuda::ptx {

/// Four matrices of 8 x 8 elements of 16 bits, as a warp holds them: of matrix i, words[i] of lane l has row
/// l / 4, columns 2 (l % 4) and the next; transposed, rows 2 (l % 4) and the next, column l / 4.
using Matrices = Vec128;

/// "Warp-level matrix load instruction: ldmatrix". From shared memory; lane l gives the address of row l % 8
/// of matrix l / 8, a multiple of 16.
template <bool kTransposed>
__device__ __forceinline__ Matrices load_matrices(const void* row) {
#ifdef __CUDACC__
  Matrices m;
  const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  if constexpr (kTransposed) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : QUIRE_WORDS("=r", m)
                 : "r"(address)
                 : "memory");
  } else {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                 : QUIRE_WORDS("=r", m)
                 : "r"(address)
                 : "memory");
  }
  return m;
#else
  const Vec128 own = host_load_128(row);
  uint16_t rows[kWarp * 8];
  host::gather(&own, sizeof(own), rows);
  const uint32_t lane = host::thread() % kWarp;
  Matrices m;
  for (uint32_t i = 0; i < 4; ++i) {
    const auto at = [&](uint32_t r, uint32_t column) { return uint32_t{rows[(i * 8 + r) * 8 + column]}; };
    const uint32_t pair = lane % 4 * 2;
    m.words[i] = kTransposed ? at(pair, lane / 4) | at(pair + 1, lane / 4) << 16
                             : at(lane / 4, pair) | at(lane / 4, pair + 1) << 16;
  }
  return m;
#endif
}

/// Two rows and two columns of a 16 x 8 matrix of f32: rows l / 4 and l / 4 + 8, columns 2 (l % 4) and the
/// next.
struct Accumulator {
  float at[4];
};

#ifndef __CUDACC__
struct HostOperands {
  Matrices a;
  uint32_t b[2];
};
/// What a lane computes of the product of all lanes' operands. It reads only its own stack, and often: the
/// compiler need not tell of it.
template <class T>
__attribute__((no_sanitize("thread"), noinline)) void host_multiply_add(Accumulator& c,
                                                                        const HostOperands* all,
                                                                        uint32_t lane) {
  using Four = float __attribute__((vector_size(16)));
  const auto half = [](uint32_t word, uint32_t column) __attribute__((no_sanitize("thread"))) {
    return to_float(T{static_cast<uint16_t>(column % 2 == 0 ? word : word >> 16)});
  };
  Four sums = {c.at[0], c.at[1], c.at[2], c.at[3]};
  for (uint32_t k = 0; k < 16; ++k) {
    const uint32_t quad = k % 8 / 2;
    const uint32_t* rows = all[lane / 4 * 4 + quad].a.words + k / 8 * 2;
    const float low = half(rows[0], k);
    const float high = half(rows[1], k);
    const HostOperands* columns = all + lane % 4 * 8 + quad;
    const float first = half(columns[0].b[k / 8], k);
    const float second = half(columns[4].b[k / 8], k);
    sums += Four{low, low, high, high} * Four{first, second, first, second};
  }
  for (uint32_t i = 0; i < 4; ++i) c.at[i] = sums[i];
}
#endif

/// "Warp-level matrix instructions: mma.m16n8k16". c += a b, where a is 16 x 16: matrices (rows 0-7, columns
/// 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15); and b is 16 x 8: its columns are rows of b0 (rows 0-7 of b)
/// and b1. T is Bf16 or F16. How the products are summed is not documented; the host sums in order, in f32.
template <class T>
__device__ __forceinline__ void multiply_add(Accumulator& c, const Matrices& a, uint32_t b0, uint32_t b1) {
#ifdef __CUDACC__
#define QUIRE_MMA(type)                                            \
  asm("mma.sync.aligned.m16n8k16.row.col.f32." type "." type       \
      ".f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};" \
      : "+f"(c.at[0]), "+f"(c.at[1]), "+f"(c.at[2]), "+f"(c.at[3]) \
      : QUIRE_WORDS("r", a), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, Bf16>) {
    QUIRE_MMA("bf16");
  } else {
    QUIRE_MMA("f16");
  }
#undef QUIRE_MMA
#else
  const HostOperands own{a, {b0, b1}};
  HostOperands all[kWarp];
  host::gather(&own, sizeof(own), all);
  host_multiply_add<T>(c, all, host::thread() % kWarp);
#endif
}

/// "Half Precision Floating Point Instructions: fma". a b + c of both elements of words, each rounded once;
/// the host is sure of it where f32 holds a b + c. T is Bf16 or F16.
template <class T>
__device__ __forceinline__ uint32_t fused_pair(uint32_t a, uint32_t b, uint32_t c) {
#ifdef __CUDACC__
  uint32_t d;
  if constexpr (std::is_same_v<T, Bf16>) {
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  } else {
    asm("fma.rn.f16x2 %0, %1, %2, %3;" : "=r"(d) : "r"(a), "r"(b), "r"(c));
  }
  return d;
#else
  const auto half = [](uint32_t word) { return to_float(T{static_cast<uint16_t>(word)}); };
  return pack_pair<T>(std::fma(half(a), half(b), half(c)),
                      std::fma(half(a >> 16), half(b >> 16), half(c >> 16)));
#endif
}

/// "Data Movement and Conversion Instructions: st". Two floats to global memory, at a multiple of 8.
__device__ __forceinline__ void store_64(float* to, float first, float second) {
#ifdef __CUDACC__
  const auto address = __cvta_generic_to_global(to);
  asm volatile("st.global.v2.f32 [%0], {%1,%2};" ::"l"(address), "f"(first), "f"(second) : "memory");
#else
  using HostPair = float __attribute__((vector_size(8)));
  *reinterpret_cast<HostPair*>(to) = HostPair{first, second};
#endif
}

}  // namespace quire::backend::cuda::ptx
